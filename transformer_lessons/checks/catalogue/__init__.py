"""What is checked: tasks with their requirements, their probes, and the known mistakes."""

# Where each task is defined: module and constant. In the order of the chapters.
TASKS = {
    "padding_mask": "masks.PADDING",
    "causal_mask": "masks.CAUSAL",
    "scaled_dot_product_attention": "attention.TASK",
    "soft_capped_attention": "soft_capped.TASK",
    "layer_norm": "layer_norm.TASK",
    "residual": "residual.TASK",
    "encoder_layer": "encoder_layer.TASK",
    "decoder_layer": "decoder_layer.TASK",
    "decoder_layer_step": "decoder_layer_step.TASK",
    "parameter_count": "parameter_count.TASK",
    "transformer": "transformer.TASK",
}
