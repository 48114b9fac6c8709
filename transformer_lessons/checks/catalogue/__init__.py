"""What is checked: tasks with their requirements, their probes, and the known mistakes."""

# Where each task is defined: module and constant. In the order of the chapters.
TASKS = {
    "padding_mask": "masks.PADDING",
    "causal_mask": "masks.CAUSAL",
    "scaled_dot_product_attention": "attention.TASK",
    "soft_capped_attention": "soft_capped.TASK",
    "layer_norm": "layer_norm.TASK",
    "greedy": "greedy.TASK",
    "cached_attention_step": "cached_attention.TASK",
    "length_penalty": "length_penalty.TASK",
    "beam": "beam.TASK",
    "top_k": "sampling.TOP_K",
    "nucleus": "sampling.NUCLEUS",
    "bleu": "bleu.TASK",
}
