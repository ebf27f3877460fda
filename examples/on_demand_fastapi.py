"""A model behind FastAPI, with an endpoint that says what its memory is made of while it serves.

pip install fastapi uvicorn
python examples/on_demand_fastapi.py 8000
curl -X POST 'http://127.0.0.1:8000/memory?seconds=5'
"""

import sys

import torch
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import PlainTextResponse

import cuptimem

app = FastAPI()
memory = cuptimem.on_demand()
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).eval()


@app.post("/predict")
def predict(rows: int = 64) -> list[int]:
    with torch.inference_mode():
        answer: list[int] = model(torch.randn(rows, 256)).argmax(1).tolist()
        return answer


@app.post("/memory", response_class=PlainTextResponse)
async def record(seconds: float = 5) -> str:
    try:
        recorded = await memory.window(seconds=seconds)
    except cuptimem.Error as error:  # a window is open already
        raise HTTPException(409, str(error)) from None
    return f"{recorded.report}"


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
