"""torchtitan's models from our model files, and what a GPU has and a CPU has not (memory.py)."""

import types

import torch

from no_gpu import keep_versions, stub_streams


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal, scale=scale)[0]


def flex(self, q_BLNH, k_BLNH, v_BLNH, *, attention_masks=None, scale=None, enable_gqa=False):
    """Its kernels are compiled; they keep what flash attention keeps."""
    q, k, v = (x.transpose(1, 2) for x in (q_BLNH, k_BLNH, v_BLNH))
    return attention(q, k, v, is_causal=True, scale=scale).transpose(1, 2)


class Autocast:
    """CPUs refuse fp32, in which routers are computed."""

    def __init__(self, device_type, dtype):
        self.dtype = dtype

    def __enter__(self):
        self.before = torch.is_autocast_enabled('cpu'), torch.get_autocast_dtype('cpu')
        torch.set_autocast_enabled('cpu', True)
        torch.set_autocast_dtype('cpu', self.dtype)
        torch.autocast_increment_nesting()

    def __exit__(self, *_):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled('cpu', self.before[0])
        torch.set_autocast_dtype('cpu', self.before[1])


def norm(x, shape, weight, eps):
    return torch.empty_like(x), x.new_empty(x.shape[:-1] + (1,), dtype=torch.float32)


def norm_backward(gradient, x, shape, rstd, weight, mask):
    return torch.empty_like(x), torch.empty_like(weight)


def equal_shares(self, local, received, ranks):
    """Rows go to ranks as numbers that fake tensors do not have."""
    share = self.rows_sent // ranks
    received = torch.ops._c10d_functional.wait_tensor(received)
    return received.reshape(-1), [share] * ranks, [share] * ranks


def become_gpu(backend):
    """What a GPU has and a CPU has not."""
    stub_streams()
    torch.autocast = Autocast
    torch.nn.functional.scaled_dot_product_attention = attention
    become_gpu.library = torch.library.Library('aten', 'IMPL')
    become_gpu.library.impl('_fused_rms_norm', norm, 'CPU')
    become_gpu.library.impl('_fused_rms_norm_backward', norm_backward, 'CPU')
    keep_versions()
    from torchtitan.tools import utils
    utils.device_type, utils.device_module = 'cpu', torch.cpu
    from torchtitan.models.common import token_dispatcher
    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
    FlexAttention.forward = flex
    kind = FlexAttention if backend == 'spmd_types' else ScaledDotProductAttention
    import torchtitan.models.deepseek_v3, torchtitan.models.llama3, torchtitan.models.qwen3
    for module in (torchtitan.models.deepseek_v3, torchtitan.models.llama3, torchtitan.models.qwen3):
        module.get_attention_config = lambda _: kind.Config()
    dispatcher = token_dispatcher.AllToAllTokenDispatcher
    dispatch = dispatcher._local_reorder

    def reorder(self, x, scores, ids):
        self.rows_sent = ids.numel()
        return dispatch(self, x, scores, ids)

    dispatcher._local_reorder, dispatcher._sync_token_count_exchange = reorder, equal_shares


def read_model(path):
    values = {}
    for line in open(path):
        key, _, value = line.split('#')[0].partition(':')
        values[key.strip()] = int(value) if value.strip().isdigit() else value.strip()
    return types.SimpleNamespace(**values)


def decoder(m, kind, layers):
    from torchtitan.models.common import Embedding, Linear, RMSNorm
    return kind.Config(
        dim=m.hidden, vocab_size=m.vocab, layers=layers, norm=RMSNorm.Config(normalized_shape=m.hidden),
        tok_embeddings=Embedding.Config(num_embeddings=m.vocab, embedding_dim=m.hidden),
        lm_head=Linear.Config(in_features=m.hidden, out_features=m.vocab))


def llama(m, seq_len):
    from torchtitan.models import llama3 as package
    from torchtitan.models.common import ComplexRoPE
    rope = ComplexRoPE.Config(dim=m.hidden // m.heads, max_seq_len=seq_len)
    layers = package._build_llama3_layers(
        n_layers=m.layers, dim=m.hidden, n_heads=m.heads, n_kv_heads=m.kv_heads, hidden_dim=m.ffn, rope=rope,
        fuse_qkv=False, attn_backend='sdpa')
    return decoder(m, package.Llama3Model, layers), package.parallelize_llama


def qwen3_moe(m, seq_len):
    from torchtitan.models import qwen3 as package
    from torchtitan.models.common import CosSinRoPE
    rope = CosSinRoPE.Config(dim=m.head_dim, max_seq_len=seq_len)
    layers = package._build_qwen3_moe_layers(
        n_layers=m.layers, dim=m.hidden, n_heads=m.heads, n_kv_heads=m.kv_heads, head_dim=m.head_dim,
        moe_hidden_dim=m.expert_ffn, num_experts=m.experts, top_k=m.experts_per_token, rope=rope, fuse_qkv=False,
        attn_backend='sdpa', moe_comm_backend='standard')
    return decoder(m, package.Qwen3Model, layers), package.parallelize_qwen3


def deepseek_v3(m, seq_len):
    from torchtitan.models import deepseek_v3 as package
    from torchtitan.models.common import ComplexRoPE
    rope = ComplexRoPE.Config(dim=m.rope_dim, max_seq_len=seq_len)
    layers = package._build_dsv3_layers(
        n_layers=m.layers, n_dense_layers=m.dense_layers, dim=m.hidden, n_heads=m.heads, q_lora_rank=m.query_rank,
        kv_lora_rank=m.kv_rank, qk_nope_head_dim=m.head_dim - m.rope_dim, qk_rope_head_dim=m.rope_dim,
        v_head_dim=m.value_dim, mscale=1.0, dense_hidden_dim=m.ffn, moe_hidden_dim=m.expert_ffn,
        num_experts=m.experts, num_shared_experts=m.shared_ffn // m.expert_ffn, router_top_k=m.experts_per_token,
        router_score_func='sigmoid', rope=rope, attn_backend='sdpa', moe_comm_backend='standard',
        non_blocking_capacity_factor=None)
    return decoder(m, package.DeepSeekV3Model, layers), package.parallelize_deepseekv3


FAMILIES = {'llama': llama, 'qwen3_moe': qwen3_moe, 'deepseek_v3': deepseek_v3}
