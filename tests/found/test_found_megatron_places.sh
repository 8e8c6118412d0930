#!/usr/bin/env bash
# Archives of two ranks that have changed places were taken: names, shapes and types are alike. Megatron's arguments say which rank wrote a file. Where
# all files do, and only their places are wrong, they are refused; a converter, whose one process writes all files, says nothing by its rank.
# ctest: timeout=300
. "$(dirname "$0")/found.bash"
command -v python3 >/dev/null || { echo "no python3: nothing writes arguments"; exit 0; }
policy=$TREADLE_SOURCE/examples/sequence/policy
# write FOLDER "RANKS" KEY=VALUE...: arguments of Megatron in the files, in their order, each with its rank.
write() {
  python3 - "$@" <<'END'
import argparse, glob, pickle, sys, zipfile
folder, ranks, *settings = sys.argv[1:]
files = sorted(glob.glob(folder + "/release/mp_rank_*/model_optim_rng.pt"))
ranks = ranks.split()
assert len(files) == len(ranks)
for path, rank in zip(files, ranks):
    with zipfile.ZipFile(path) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    arguments = argparse.Namespace(data_parallel_size=1, **({} if rank == "-" else {"rank": int(rank)}))
    for setting in settings:
        key, value = setting.split("=")
        setattr(arguments, key, value == "True" if value in ("True", "False") else int(value))
    # Behind the dict at the top: a key, the arguments, SETITEM.
    more = pickle.dumps("args", 2)[2:-1] + pickle.dumps(arguments, 2)[2:-1] + b"s."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            archive.writestr(name, data[:-1] + more if name.endswith("/data.pkl") else data)
END
}
# made LAYOUT "RANKS" KEY=VALUE...: a checkpoint with such arguments; convert then reads it.
made() {
  layout=$1
  rm -rf "$folder/made" "$folder/back"
  "$TREADLE" convert --from hf --to "$layout" "$policy" "$folder/made" >/dev/null
  write "$folder/made" "${@:2}"
}
read_back() { "$TREADLE" convert --from "$layout" --to hf --model "$policy" "$folder/made" "$folder/back"; }
taken() {
  made "$@"
  run 0 read_back
  cmp "$folder/back/model.safetensors" "$policy/model.safetensors" || fail "$*: other weights"
}
swapped() { # WHICH OTHER WORDS
  local files=("$folder"/made/release/mp_rank_*/model_optim_rng.pt)
  rm -rf "$folder/back"
  mv "${files[$1]}" "$folder/moved"
  mv "${files[$2]}" "${files[$1]}"
  mv "$folder/moved" "${files[$2]}"
  refused "${files[$1]}: its arguments say that $3" read_back
  [ ! -e "$folder/back" ] || fail "a refused conversion has left something"
}
two=(tensor_model_parallel_size=2 pipeline_model_parallel_size=1)
stages=(tensor_model_parallel_size=1 pipeline_model_parallel_size=4)
four=(tensor_model_parallel_size=2 pipeline_model_parallel_size=2)

taken megatron:tp=2 "0 1" world_size=2 "${two[@]}"
swapped 0 1 "rank 1 wrote it, of tensor parallel rank 1 and pipeline stage 0, and its folder is that of 0 and 0: files of this checkpoint have changed places"
taken megatron:tp=2 "4 7" world_size=8 "${two[@]}" # of other data parallel ranks
swapped 0 1 "rank 7 wrote it, of tensor parallel rank 1"
taken megatron:tp=1,pp=4 "0 2 4 6" world_size=8 "${stages[@]}" # stages are the slowest; those in the middle have tensors of the same names
swapped 1 2 "rank 4 wrote it, of tensor parallel rank 0 and pipeline stage 2, and its folder is that of 0 and 1"
taken megatron:tp=1,pp=4 "0 1 2 3" world_size=8 use_tp_pp_dp_mapping=True "${stages[@]}"
swapped 1 2 "rank 2 wrote it, of tensor parallel rank 0 and pipeline stage 2, and its folder is that of 0 and 1"
taken megatron:tp=2,pp=2 "0 2 1 3" world_size=8 use_tp_pp_dp_mapping=True "${four[@]}"
swapped 0 2 "rank 1 wrote it, of tensor parallel rank 1 and pipeline stage 0"

# What says nothing for certain.
taken megatron:tp=2 "0 0" world_size=1 "${two[@]}"  # of a converter
taken megatron:tp=2 "1 1" world_size=2 "${two[@]}"  # the same
taken megatron:tp=2 "1 3" world_size=4 "${two[@]}"  # two processes that shared the work: no rank of tensor parallel rank 0
taken megatron:tp=2 "1 0" world_size=1 "${two[@]}"  # no rank of such a world
taken megatron:tp=2 "1 0" world_size=2 tensor_model_parallel_size=1 pipeline_model_parallel_size=1
taken megatron:tp=2 "1 0" world_size=2              # sizes are not there
taken megatron:tp=2 "- -" world_size=2 "${two[@]}"  # ranks are not there
taken megatron:tp=2 "1 -" world_size=2 "${two[@]}"
