"""How sashes blow in the wind: optical flow of a film by torchvision's RAFT, pair by pair."""
import torch
import torch.nn.functional as F
from torchvision.models.optical_flow import raft_small
from torchvision.utils import flow_to_image

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FRAMES = 97
HEIGHT, WIDTH = 240, 320
PAIRS = 16


def film(frames, height, width):
    """Stripes that sway, as bytes."""
    x = torch.linspace(0, 12, width).view(1, 1, width)
    y = torch.linspace(0, 3, height).view(1, height, 1)
    t = torch.linspace(0, 2, frames).view(frames, 1, 1)
    wave = torch.sin(x + torch.sin(y + 3 * t)) * 0.5 + 0.5
    return (wave * 255).to(torch.uint8).unsqueeze(1).expand(-1, 3, -1, -1).contiguous()


def preprocess(frames):
    frames = frames.float() / 127.5 - 1
    return F.interpolate(frames, size=(HEIGHT, WIDTH), mode="bilinear", align_corners=False)


def estimate(model, video):
    flows = []
    with torch.no_grad():
        for start in range(0, len(video) - 1, PAIRS):
            first = video[start : start + PAIRS]
            second = video[start + 1 : start + 1 + PAIRS]
            predicted_flows = model(first, second)
            flows.append(predicted_flows)
    return torch.cat([predicted[-1] for predicted in flows])


def strength(flow):
    return flow.pow(2).sum(dim=1).sqrt().mean(dim=(1, 2))


def main():
    model = raft_small(weights=None, progress=False).to(DEVICE)
    model = model.eval()

    video = preprocess(film(FRAMES, 270, 480).to(DEVICE))
    flow = estimate(model, video)

    winds = strength(flow).cpu()
    print(f"{len(winds)} pairs, strongest {winds.max().item():.3f}")
    pictures = flow_to_image(flow[:4].cpu().nan_to_num())
    print(pictures.shape, pictures.dtype)


if __name__ == "__main__":
    main()
