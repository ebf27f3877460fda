# torchtune: what its LoRA recipes log after the model is made, in bf16 on the device.
import torch
from measure import figure, report
from torchtune import training
from torchtune.models.llama2 import lora_llama2_7b
from torchtune.models.llama3_2 import lora_llama3_2_3b

name = figure()
device = torch.device("cuda")
with training.set_default_dtype(torch.bfloat16), device:
    if name.startswith("tune-l2"):
        model = lora_llama2_7b(["q_proj", "v_proj"], lora_rank=8, lora_alpha=16)
    else:
        everywhere = ["q_proj", "v_proj", "output_proj"]
        model = lora_llama3_2_3b(everywhere, apply_lora_to_mlp=True, lora_rank=64, lora_alpha=128)
with training.set_default_dtype(torch.bfloat16), device:
    for module in model.modules():  # rotary embeddings are made again after the model was loaded
        if hasattr(module, "rope_init"):
            module.rope_init()
report(torch.cuda.max_memory_allocated() if name.endswith("alloc") else torch.cuda.max_memory_reserved())
