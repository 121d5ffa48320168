"""A video model of one's own for arachne: ``--model own_model:SPEC``."""

import torch
from torch import nn
from torch.nn.functional import layer_norm

from arachne_opt.executor.adapters.base import VideoAdapter
from arachne_opt.executor.sequence_parallel import joint_attention, own_text
from arachne_opt.models import ModelSpec, TextUse, VaeSpec

SPEC = ModelSpec(
    name="own-model",
    family="own_model:OwnAdapter",
    layers=2, heads=4, head_dim=8, ffn=128, parameters=26_768,
    patch=(1, 2, 2), in_channels=4, out_channels=4,
    text_use=TextUse.JOINT, text_length=8, text_width=16,
    vae=VaeSpec(
        temporal=4, spatial=8, latent_channels=4, encoder_parameters=772,
        encode_flops_per_pixel=24, base_channels=4, channel_multipliers=(1,), blocks_per_level=1,
    ),
    source="an example",
)  # fmt: skip


class OwnAdapter(VideoAdapter):
    def __init__(self, choice, device):
        super().__init__(choice, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(choice.seed)  # the same weights on every rank
            self.vae = nn.Conv2d(3, 4, 8, stride=8).requires_grad_(False).to(device)
            self.transformer = OwnTransformer(self.config).to(device)

    @torch.no_grad()
    def encode(self, pixels_BCFHW):
        frames = pixels_BCFHW[:, :, ::4].transpose(1, 2)  # every fourth
        latents = self.vae(frames.flatten(0, 1))
        return latents.unflatten(0, frames.shape[:2]).transpose(1, 2)

    def predict(self, noisy_BnP, batch):
        places = torch.cartesian_prod(*map(torch.arange, self.config.grid(batch.shape)))
        own = places[self.window(batch.shape).own].to(self.device).float()  # of this rank's tokens
        numbers = torch.arange(batch.text.shape[1], device=self.device)
        counted = numbers < batch.text_lengths[:, None]  # text tokens that are no padding
        return self.transformer(noisy_BnP, batch.timesteps, batch.text, own, counted)


class OwnTransformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.width
        self.embed = nn.Linear(config.token_features, width)
        self.text = nn.Linear(config.text_dim, width)
        self.time, self.place = nn.Linear(1, width), nn.Linear(3, width)
        self.blocks = nn.ModuleList(OwnBlock(config) for _ in range(config.layers))
        self.out = nn.Linear(width, config.token_features)

    def forward(self, tokens, times, text, places, counted):
        video = self.embed(tokens) + self.time(times[:, None, None]) + self.place(places)
        text = self.text(text)[:, own_text(text.shape[1])]  # of this rank
        x = torch.cat((video, text), dim=1)
        for block in self.blocks:
            x = block(x, counted)
        return self.out(x[:, : tokens.shape[1]])


class OwnBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, self.heads = config.width, config.heads
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width))

    def forward(self, x, counted):
        heads = self.qkv(layer_norm(x, x.shape[-1:])).unflatten(-1, (3, self.heads, -1))
        q, k, v = heads.unbind(-3)
        mixed = joint_attention(q, k, v, text=counted.shape[1], text_mask_BL=counted)
        x = x + self.proj(mixed.flatten(-2))
        return x + self.mlp(layer_norm(x, x.shape[-1:]))
