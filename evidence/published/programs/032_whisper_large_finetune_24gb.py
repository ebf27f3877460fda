# needs: torch, transformers >= 4.56, accelerate
# after https://github.com/huggingface/transformers/issues/20348 (fine-tuning whisper large on 24 GB with batch 1 runs out of memory)
# and https://huggingface.co/blog/fine-tune-whisper (Seq2SeqTrainer, fp16)
import tempfile
import torch
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    vocab_size=51865,
    num_mel_bins=80,
    d_model=1280,
    encoder_layers=32,
    encoder_attention_heads=20,
    decoder_layers=32,
    decoder_attention_heads=20,
    encoder_ffn_dim=5120,
    decoder_ffn_dim=5120,
    max_source_positions=1500,
    max_target_positions=448,
    pad_token_id=50257,
    bos_token_id=50257,
    eos_token_id=50257,
    decoder_start_token_id=50258,
    use_cache=False,
)
with torch.device("cuda"):
    model = WhisperForConditionalGeneration(config)
training_args = Seq2SeqTrainingArguments(
    output_dir=tempfile.mkdtemp(),
    per_device_train_batch_size=1,
    learning_rate=1e-5,
    max_steps=2,
    fp16=True,
    gradient_checkpointing=True,
    save_strategy="no",
    report_to="none",
    logging_steps=1,
    disable_tqdm=True,
)
train = [{"input_features": torch.randn(80, 3000), "labels": torch.randint(0, 50257, (64,))} for _ in range(2)]
trainer = Seq2SeqTrainer(model=model, args=training_args, train_dataset=train)
print(trainer.train().metrics)
