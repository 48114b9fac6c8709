"""What is checked: tasks with their requirements, their probes, and the known mistakes."""

# Where each task is defined: module and constant. In the order of the chapters.
TASKS = {
    "token_embedding": "token_embedding.TASK",
    "sinusoidal": "sinusoids.TABLE",
    "shift_matrix": "sinusoids.SHIFT",
    "rotary": "rotary.TASK",
    "relative_bias": "relative_bias.TASK",
    "padding_mask": "masks.PADDING",
    "causal_mask": "masks.CAUSAL",
    "scaled_dot_product_attention": "attention.TASK",
    "soft_capped_attention": "soft_capped.TASK",
    "split_heads": "heads.SPLIT",
    "merge_heads": "heads.MERGE",
    "multi_head": "multi_head.TASK",
    "grouped_query": "grouped_query.TASK",
    "linear_attention": "linear.TASK",
    "linear_attention_step": "linear_step.TASK",
    "layer_norm": "layer_norm.TASK",
    "teacher_forcing": "teacher_forcing.TASK",
    "warmup": "warmup.TASK",
    "label_smoothing": "label_smoothing.TASK",
    "accumulated_gradients": "accumulation.TASK",
    "adam_step": "adam.TASK",
    "average_checkpoints": "averaging.TASK",
}
