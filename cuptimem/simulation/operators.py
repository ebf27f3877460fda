"""Which of PyTorch's operators computed.py follows, and how: tables of names, as the dispatcher has them.

An operator that is in no table is followed if it is pointwise. Of all others the output becomes unknown.
"""

# Operators that move elements: by name, the arguments with the elements that they move. Of the others (indices) all
# must be known.
MOVES = {
    "cat": ("tensors",),
    "index": ("self",),
    "index_select": ("self",),
    "gather": ("self",),
    "flip": ("self",),
    "roll": ("self",),
    "take": ("self",),
    "tril": ("self",),
    "tril_": ("self",),
    "triu": ("self",),
    "triu_": ("self",),
    "scatter": ("self", "src"),
    "scatter_": ("self", "src"),
    "index_copy": ("self", "source"),
    "index_copy_": ("self", "source"),
    "index_fill_": ("self", "value"),
    "_index_put_impl_": ("self", "values"),
    "masked_fill_": ("self", "value"),
    "masked_select": ("self",),
    "copy_": ("self", "src"),
    "reflection_pad1d": ("self",),
    "replication_pad1d": ("self",),
}
# Their result rests on all elements of all inputs.
WHOLE = frozenset(
    (
        *("_aminmax", "aminmax", "amax", "amin", "max", "min", "argmax", "argmin", "median", "mode", "kthvalue"),
        *("sum", "nansum", "prod", "mean", "std", "var", "trace", "cumsum", "cumsum_", "cumprod", "cumprod_"),
        *("_cummax_helper", "_cummin_helper", "count_nonzero", "bincount", "sort"),
        *("index_add", "index_add_", "scatter_add", "scatter_add_", "nonzero_static", "isin"),
        *("arange", "range", "linspace", "logspace", "eye"),
        *("tril_indices", "triu_indices", "floor_divide", "floor_divide_", "rsub"),
        *("eq_", "ne_", "lt_", "le_", "gt_", "ge_"),
    )
)
DRAWN = frozenset(
    (
        *("bernoulli_", "uniform_", "normal_", "random_", "geometric_", "exponential_", "multinomial"),
        *("randperm", "_philox_uniform_"),
    )
)
# They make no elements, or data_sizes.py does, or their memory belongs to another tensor.
PASSED = frozenset(
    (
        *("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex", "set_", "resize_"),
        *("empty", "empty_strided", "is_set_to", "record_stream", "_fused_sdp_choice", "_efficientzerotensor"),
        *("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss", "_assert_async", "_nested_view_from_buffer"),
        *("_nested_compute_contiguous_strides_offsets", "_validate_compressed_sparse_indices", "equal", "nonzero"),
        *("_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
        *("repeat_interleave", "_to_sparse", "_to_sparse_csr", "_to_sparse_csc", "_to_sparse_bsr"),
        "_to_sparse_bsc",
    )
)
# Their results are floats in new memory that they do not clear before: it is unknown as it is.
NEVER_CLEAR = (
    *("mm", "bmm", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm"),
    *("_fused_rms_norm", "native_dropout", "_fused_dropout", "cudnn_", "convolution", "_scaled_dot_product"),
    *("_flash_attention", "_efficient_attention", "_cudnn_attention", "_scaled_mm", "_grouped_mm"),
)
# PyTorch calls these with numbers that lie on the device, which it cannot hand to a kernel in Python.
NUMBERS_ON_DEVICE = (
    *("aten::pow.Tensor_Tensor", "aten::pow.Tensor_Tensor_out", "aten::isin.Tensor_Tensor_out"),
    *("aten::searchsorted.Tensor", "aten::searchsorted.Tensor_out"),
    *("aten::bucketize.Tensor", "aten::bucketize.Tensor_out"),
    *("aten::searchsorted.Scalar", "aten::bucketize.Scalar"),
)
# They write over running_mean and running_var, which their schemas do not declare.
BATCH_NORMS = frozenset(
    (
        *("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm"),
        *("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_update_stats"),
    )
)
# Their kernels call operators that are computed on the same tensor: to compute them as well would do it twice.
NOT_TWICE = frozenset(("logit_", "mvlgamma_", "scatter_reduce_", "scatter_reduce", "conj_physical_"))
BESIDE = ("aten::copy_", "aten::random_")  # have no kernel under the key of CUDA, or not always
