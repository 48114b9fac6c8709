"""One module per task: the right answer, and the calls that show whether each requirement is met."""

# In the order of the chapters.
TASKS = """
token_embedding sinusoidal shift_matrix rotary relative_bias padding_mask causal_mask combine_masks
masked_self_attention local_window_mask segment_mask
scaled_dot_product_attention soft_capped_attention written_by_heads multi_head grouped_query
linear_attention_step feed_forward layer_norm batch_norm masked_batch_norm rms_norm
residual layer decoder_layer decoder_layer_step transformer teacher_forcing warmup
label_smoothing accumulated_gradients adam_step greedy cached_attention_step
beam top_k nucleus bleu scaled_step tiled_attention
chunked_cross_entropy influence attention_test
""".split()
