"""What is checked: tasks with their requirements, their probes, and the known mistakes."""

# Where each task is defined: module and constant. In the order of the chapters.
TASKS = {
    "padding_mask": "masks.PADDING",
    "causal_mask": "masks.CAUSAL",
    "scaled_dot_product_attention": "attention.TASK",
    "soft_capped_attention": "soft_capped.TASK",
    "feed_forward": "feed_forward.TASK",
    "swiglu": "swiglu.TASK",
    "layer_norm": "layer_norm.TASK",
    "batch_norm": "batch_norm.TASK",
    "masked_batch_norm": "masked_batch_norm.TASK",
    "rms_norm": "rms_norm.TASK",
}
