"""Becomes a program that the kernel kills when the process that started it ends, however that ends:

    python -I -S _tied.py PARENT PROGRAM ARGUMENTS...

PARENT is the process id of who starts it. Signals are as in a program that a shell starts: Ray blocks some, and Python
ignores some."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it had ended before
        sys.exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(program, sys.argv[2:])


main()
