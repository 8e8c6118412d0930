"""A reward for verl's program for training."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    """Letters of the prompt, and different ones."""
    return solution_str.count(ground_truth) / 8 + len(set(solution_str)) / 64
