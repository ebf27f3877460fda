# meta-pytorch/segment-anything-fast: the original Segment Anything models, inference at 1024 x 1024.
import torch
from measure import figure, report
from segment_anything import sam_model_registry

_sam, size, precision, batch = figure().split("-")
batch = int(batch.removeprefix("b"))
model = sam_model_registry[size.replace("vitb", "vit_b").replace("vith", "vit_h")]().cuda().eval()
if precision == "bf16":
    model = model.to(torch.bfloat16)
    model.prompt_encoder.float()  # it computes with points in single precision
masks = 16  # of a picture: a point in the middle of each
with torch.no_grad():
    for _ in range(2):
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        pictures = torch.randn(batch, 3, 1024, 1024, device="cuda").to(dtype)
        features = model.image_encoder(pictures)
        for one in features:
            points = torch.rand(masks, 1, 2, device="cuda") * 1024
            labels = torch.ones(masks, 1, dtype=torch.int, device="cuda")
            sparse, dense = model.prompt_encoder(points=(points, labels), boxes=None, masks=None)
            low, _iou = model.mask_decoder(
                image_embeddings=one.unsqueeze(0),
                image_pe=model.prompt_encoder.get_dense_pe().to(dtype),
                sparse_prompt_embeddings=sparse.to(dtype),
                dense_prompt_embeddings=dense.to(dtype),
                multimask_output=True,
            )
report(torch.cuda.max_memory_allocated())
