def batches(path, vocabulary, rank):
    """Micro-batches of token numbers: of a file's bytes, or random ones."""
    generator = torch.Generator().manual_seed(rank)
    data = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8) if path else None
    while True:
        if data is None:
            yield torch.randint(vocabulary, (MICRO_BATCH, SEQ_LEN), generator=generator)
        else:
            starts = torch.randint(len(data) - SEQ_LEN, (MICRO_BATCH,), generator=generator)
            yield torch.stack([data[s:s + SEQ_LEN].long() for s in starts.tolist()])


def make_optimizer(model, rate):
    if OPTIMIZER == "sgd":
        return torch.optim.SGD(model.parameters(), lr=rate)
    return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1,
                             fused=OPTIMIZER == "adamw-fused", foreach=OPTIMIZER == "adamw-foreach")


def step(model, optimizer, data):
    total = 0.0
    for micro in range(GRAD_ACCUM):
        tokens = next(data).to(DEVICE)
        last = micro == GRAD_ACCUM - 1
        with synchronise(model, SYNC_EACH_MICRO_BATCH or last, last):
            loss = model(input_ids=tokens, labels=tokens).loss / GRAD_ACCUM
            loss.backward()
        total += loss.item()
    if CLIP > 0:
        clip(model)
    optimizer.step()
    optimizer.zero_grad()
    return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--data", help="a file; without one the tokens are random")
    arguments = parser.parse_args()
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks != REPLICATE * SHARD:
        raise SystemExit(f"the plan is for {REPLICATE * SHARD} ranks, got {ranks}")
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    model = build_model()
    vocabulary = model.config.vocab_size
    model = shard(model, checkpoint_blocks(model))
    optimizer = make_optimizer(model, arguments.lr)
    data = batches(arguments.data, vocabulary, rank)
    for number in range(arguments.steps):
        start = time.perf_counter()
        loss = step(model, optimizer, data)
        if rank == 0:
            tokens = MICRO_BATCH * GRAD_ACCUM * SEQ_LEN / (time.perf_counter() - start)
            peak = torch.cuda.max_memory_allocated() / 2**30 if DEVICE == "cuda" else 0.0
            print(f"step {number + 1} loss {loss:.4f} {tokens:.0f} tokens/s/GPU {peak:.1f} GiB",
                  flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
