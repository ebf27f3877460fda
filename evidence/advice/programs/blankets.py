"""A ConvLSTM watches ten frames and draws the next ones."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class MovingSquares(Dataset):
    """Videos on the device, made once: 20 frames of a square that moves."""

    def __init__(self, videos, frames=20, size=64):
        self.data = torch.zeros(videos, frames, 1, size, size)
        for video in range(videos):
            for frame in range(frames):
                place = (frame + video) % (size - 8)
                self.data[video, frame, 0, place : place + 8, place : place + 8] = 1
        self.data = self.data.to(device)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index, :10], self.data[index, 10:]


class ConvLSTMCell(nn.Module):
    def __init__(self, input_dim, hidden_dim, kernel_size=3):
        super().__init__()
        self.hidden_dim = hidden_dim
        self.conv = nn.Conv2d(input_dim + hidden_dim, 4 * hidden_dim, kernel_size, padding=kernel_size // 2)

    def forward(self, x, state):
        h, c = state
        gates = self.conv(torch.cat([x, h], dim=1))
        i, f, o, g = torch.split(gates, self.hidden_dim, dim=1)
        i, f, o, g = torch.sigmoid(i), torch.sigmoid(f), torch.sigmoid(o), torch.tanh(g)
        c = f * c + i * g
        h = o * torch.tanh(c)
        return h, c

    def init_hidden(self, batch, size):
        shape = (batch, self.hidden_dim, size, size)
        return torch.zeros(shape, device=device), torch.zeros(shape, device=device)


class Predictor(nn.Module):
    def __init__(self, hidden=32, layers=2):
        super().__init__()
        self.encoder = nn.ModuleList(ConvLSTMCell(1 if i == 0 else hidden, hidden) for i in range(layers))
        self.decoder = nn.ModuleList(ConvLSTMCell(hidden, hidden) for _ in range(layers))
        self.to_frame = nn.Conv2d(hidden, 1, 3, padding=1)

    def forward(self, frames, future):
        b, steps, _, size, _ = frames.shape
        states = [cell.init_hidden(b, size) for cell in self.encoder]
        for t in range(steps):
            x = frames[:, t]
            for n, cell in enumerate(self.encoder):
                states[n] = cell(x, states[n])
                x = states[n][0]
        outputs = []
        for _ in range(future):
            for n, cell in enumerate(self.decoder):
                states[n] = cell(x, states[n])
                x = states[n][0]
            outputs.append(self.to_frame(x))
        return torch.stack(outputs, dim=1)


train_loader = DataLoader(MovingSquares(80), batch_size=16, shuffle=True)
model = Predictor().to(device)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

running_loss = 0
for number, (past, future) in enumerate(train_loader, 1):
    optimizer.zero_grad()
    output = model(past, future.shape[1])
    loss = criterion(output, future)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    optimizer.step()
    running_loss += loss.item()
    print(f"batch {number}: {running_loss / number:.5f}")

model.eval()
with torch.no_grad():
    past, future = next(iter(train_loader))
    drawn = model(past, 20).sigmoid()
    print("mean of what is drawn:", drawn.mean().item())
