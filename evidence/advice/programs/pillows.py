"""What goes with these pillows? NeuMF on purchases: a factor model and a perceptron, with sampled negatives."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

CONFIG = {
    "num_users": 180_000,
    "num_items": 60_000,
    "latent_dim_mf": 64,
    "latent_dim_mlp": 128,
    "layers": [256, 128, 64],
    "batch_size": 4096,
    "num_negative": 4,
    "lr": 1e-3,
    "weight_decay": 1e-6,
    "steps": 6,
}


class Purchases(Dataset):
    def __init__(self, config):
        count = config["steps"] * config["batch_size"] // (1 + config["num_negative"]) + 1
        self.users = torch.randint(0, config["num_users"], (count,))
        self.items = torch.randint(0, config["num_items"], (count,))
        self.num_items = config["num_items"]
        self.num_negative = config["num_negative"]

    def __len__(self):
        return len(self.users) * (1 + self.num_negative)

    def __getitem__(self, i):
        row, which = divmod(i, 1 + self.num_negative)
        if which == 0:
            return self.users[row], self.items[row], torch.tensor(1.0)
        return self.users[row], torch.randint(0, self.num_items, ()), torch.tensor(0.0)


class NeuMF(nn.Module):
    def __init__(self, config):
        super().__init__()
        users, items = config["num_users"], config["num_items"]
        self.embedding_user_mlp = nn.Embedding(users, config["latent_dim_mlp"])
        self.embedding_item_mlp = nn.Embedding(items, config["latent_dim_mlp"])
        self.embedding_user_mf = nn.Embedding(users, config["latent_dim_mf"])
        self.embedding_item_mf = nn.Embedding(items, config["latent_dim_mf"])

        self.fc_layers = nn.ModuleList()
        for in_size, out_size in zip(config["layers"][:-1], config["layers"][1:], strict=True):
            self.fc_layers.append(nn.Linear(in_size, out_size))
        self.affine_output = nn.Linear(config["layers"][-1] + config["latent_dim_mf"], 1)

        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, 0.0, 0.01)

    def forward(self, user_indices, item_indices):
        user_mlp = self.embedding_user_mlp(user_indices)
        item_mlp = self.embedding_item_mlp(item_indices)
        user_mf = self.embedding_user_mf(user_indices)
        item_mf = self.embedding_item_mf(item_indices)

        mlp_vector = torch.cat([user_mlp, item_mlp], dim=-1)
        mf_vector = torch.mul(user_mf, item_mf)
        for layer in self.fc_layers:
            mlp_vector = layer(mlp_vector)
            mlp_vector = torch.relu(mlp_vector)

        vector = torch.cat([mlp_vector, mf_vector], dim=-1)
        return self.affine_output(vector).squeeze(-1)


class Engine:
    def __init__(self, config):
        self.config = config
        self.model = NeuMF(config).to(DEVICE)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=config["lr"], weight_decay=config["weight_decay"])
        self.crit = nn.BCEWithLogitsLoss()

    def train_single_batch(self, users, items, ratings):
        users, items, ratings = users.to(DEVICE), items.to(DEVICE), ratings.to(DEVICE)
        self.opt.zero_grad()
        ratings_pred = self.model(users, items)
        loss = self.crit(ratings_pred, ratings)
        loss.backward()
        self.opt.step()
        return loss.item()

    def train_an_epoch(self, train_loader, epoch_id):
        self.model.train()
        total_loss = 0
        for batch_id, batch in enumerate(train_loader):
            user, item, rating = batch
            loss = self.train_single_batch(user, item, rating)
            print(f"[Training Epoch {epoch_id}] Batch {batch_id}, Loss {loss:.4f}")
            total_loss += loss
        return total_loss


if __name__ == "__main__":
    engine = Engine(CONFIG)
    loader = DataLoader(Purchases(CONFIG), batch_size=CONFIG["batch_size"], shuffle=True)
    for epoch in range(1):
        print("loss", engine.train_an_epoch(loader, epoch))
