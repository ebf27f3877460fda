"""Names of the programs in programs.py, which needs PyTorch."""

NAMES = (
    "GPT, AdamW",
    "ResNet, SGD with momentum",
    "LSTM, Adam",
    "mixed precision, GradScaler",
    "checkpointing",
    "checkpointing, reentrant",
    "gradient accumulation",
    "GPT-2 as Hugging Face writes it",
    "inference",
    "GAN",
    "Transformer encoder, RMSprop",
    "tied weights, shared module",
    "frozen layers",
    "set_to_none=False",
    "transformers",
)
