"""One small file of every format, in the shape of the real ones; written by us."""

import json

OPEN_SORA = (
    "path,text,num_frames,height,width,aspect_ratio,fps,resolution\n"
    'v/a.mp4,"a kite, red",102,720,1280,0.5625,24.0,921600\n'
    "i/c.jpg,snow,1,512,512,1.0,inf,262144\n"
)
FINETRAINERS = json.dumps(
    {
        "datasets": [
            {
                "data_root": "clips",
                "dataset_type": "video",
                "id_token": "AFKX",
                "video_resolution_buckets": [[49, 480, 720], "81x480x832"],
                "image_resolution_buckets": [[512, 768]],
                "reshape_mode": "bicubic",
            }
        ]
    },
    indent=1,
)
DIFFUSION_PIPE = """resolutions = [512, [1280, 720]]
enable_ar_bucket = true
min_ar = 0.5
max_ar = 2.0
num_ar_buckets = 3
frame_buckets = [1, 33]
[[directory]]
path = 'clips'
num_repeats = 2
"""
MUSUBI = """[general]
resolution = [960, 544]
caption_extension = ".txt"
batch_size = 2
enable_bucket = true

[[datasets]]
video_directory = "clips"
target_frames = [1, 25, 45]
frame_extraction = "slide"
frame_stride = 10
source_fps = 30.0
"""
MUSUBI_LINES = (
    '{"video_path": "clips/a.mp4", "caption": "a cat"}\n'
    '{"video_path": "clips/b.mp4", "caption": "a dog", "num_frames": 9}\n'
)
FASTVIDEO = json.dumps(
    [
        {
            "path": "a.mp4",
            "cap": ["a cat"],
            "resolution": {"width": 832, "height": 480},
            "num_frames": 81,
            "fps": 16.0,
        }
    ]
)
OPEN_SORA_BUCKETS = """bucket_config = {
    "_delete_": True,
    "480p": {1: (0.5, 8), 33: ((0.5, 0.5), 2)},
    "256px": {1: (1.0, 45), 129: (0.0, None)},
}
"""
NVIDIA_SMI = """index, name, memory.total [MiB]
0, NVIDIA H100 80GB HBM3, 81559 MiB
1, NVIDIA H100 80GB HBM3, 81559 MiB
"""
NVIDIA_SMI_XML = """<?xml version="1.0" ?>
<nvidia_smi_log>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:07:00.0">
    <product_name>NVIDIA A100-SXM4-40GB</product_name>
    <mig_mode><current_mig>Disabled</current_mig></mig_mode>
    <fb_memory_usage><total>40960 MiB</total></fb_memory_usage>
  </gpu>
</nvidia_smi_log>
"""
TOPOLOGY = """\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tPXB\tSYS\t0-47\t0\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t48-95\t1\t\tN/A
NIC0\tPXB\tSYS\t X \tSYS
NIC1\tSYS\tPXB\tSYS\t X
"""
SLURM = """NodeName=gpu01 Arch=x86_64 CoresPerSocket=32
   ActiveFeatures=a100,ib
   Gres=gpu:a100:8(S:0-1),nvme:2
   OS=Linux 5.15.0 #1 SMP Tue Jan 2 10:00:00 UTC 2024
   State=MIXED ThreadsPerCore=2

NodeName=gpu02 Gres=gpu:l4:2 State=DOWN*+DRAIN
   Reason=bad memory [root@2024-01-02T10:00:00]
"""
KUBERNETES = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "metadata": {
                    "name": "gpu-a",
                    "labels": {
                        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                        "nvidia.com/gpu.memory": "81559",
                        "topology.kubernetes.io/zone": "eu-1a",
                    },
                },
                "spec": {"unschedulable": False},
                "status": {
                    "allocatable": {"cpu": "96", "nvidia.com/gpu": "8"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        ],
    }
)
RAY = json.dumps(
    [
        {
            "node_id": "ab12",
            "node_ip": "10.0.0.1",
            "state": "ALIVE",
            "node_name": "10.0.0.1",
            "resources_total": {"CPU": 64.0, "GPU": 8.0, "accelerator_type:A100-80G": 1.0},
        }
    ]
)
SKYPILOT = """name: train
resources:
  any_of:
    - accelerators: {A100-80GB: 8}
    - accelerators: H100:8
num_nodes: 2
run: torchrun train.py
"""
VIDEO_MODEL = json.dumps(
    {
        "_class_name": "WanTransformer3DModel",
        "attention_head_dim": 128,
        "cross_attn_norm": True,
        "ffn_dim": 8960,
        "image_dim": None,
        "in_channels": 16,
        "num_attention_heads": 12,
        "num_layers": 30,
        "out_channels": 16,
        "patch_size": [1, 2, 2],
    }
)
LANGUAGE_MODEL = json.dumps(
    {
        "model_type": "mixtral",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 32000,
        "max_position_embeddings": 32768,
    }
)
RANK_PLAN = """format: arachne.rank-plan/1
plan: "abc"
plan_format: arachne.cascade-plan/1
instance: "it0"
problem: f00d
makespan_s: 1.0
ranks:
  - rank: 0
    tasks:
      - {order: 0, task: 0, stage: "vae", sp: 2, gpus: [0, 1], start_s: 0.0, end_s: 1.0}
      - {order: 1, task: 0, stage: "dit", sp: 1, gpus: [0], start_s: 1.0, end_s: 2.0}
  - rank: 1
    tasks:
      - {order: 0, task: 0, stage: "vae", sp: 2, gpus: [0, 1], start_s: 0.0, end_s: 1.0}
"""
