"""What is checked: tasks with their requirements, their probes, and the known mistakes."""

# Where each task is defined: module and constant. In the order of the chapters.
TASKS = {
    "padding_mask": "masks.PADDING",
    "causal_mask": "masks.CAUSAL",
    "scaled_dot_product_attention": "attention.TASK",
    "soft_capped_attention": "soft_capped.TASK",
    "layer_norm": "layer_norm.TASK",
    "scaled_step": "scaled_step.TASK",
    "fused_attention": "fused_attention.TASK",
    "accumulated_step": "accumulated_step.TASK",
    "tiled_attention": "tiled_attention.TASK",
    "checkpointed_feed_forward": "checkpointed_feed_forward.TASK",
    "chunked_cross_entropy": "chunked_cross_entropy.TASK",
}
