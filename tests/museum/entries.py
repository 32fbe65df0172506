"""The 147 public reports that the museum is about: number, address and patterns; facts, no prose.

The patterns are numbered as in :data:`PATTERNS`. An entry's first pattern is the one that its
scenario is grouped under, unless the scenario says another of them.
"""

from typing import Final

import attrs

__all__ = ["ENTRIES", "PATTERNS", "Entry"]


@attrs.frozen
class Entry:
    """One report.

    Attributes:
        id: number in the museum, ``M001``.
        address: ``owner/name#number``, as an exhibit's docstring begins.
        url: where the report stands.
        patterns: what kinds of mistake it is an instance of.
    """

    id: str
    address: str
    url: str
    patterns: tuple[str, ...]


PATTERNS: Final = {
    "P1": "taken before admission; a refused turn keeps it or frees too much",
    "P2": "borrowed and owned are the same bare index",
    "P3": "a bundle with a part forgotten, or given back by two layers",
    "P4": "a sentinel or a padding index taken for a real slot",
    "P5": "given back while a step or a copy still uses it",
    "P6": "published before it is written",
    "P7": "position of the state and position of the tokens differ",
    "P8": "part of a state that can't be cut is taken back",
    "P9": "a slot is used again without being reset",
    "P10": "a cancel at an unusual moment",
    "P11": "an abort or a failure handled as a normal end",
    "P12": "everybody holds and waits",
    "P13": "a wake-up that rides on a signal or on traffic, without a deadline",
    "P14": "a second count beside the owners, or a check that can't see two of them",
    "P15": "one identity for two things",
    "P16": "saved and restored state",
    "P17": "ranks that decide alone",
    "P18": "a dead loop that nobody notices; order of the end",
    "P19": "check, then act; a change of many steps that is not atomic",
}

_TABLE: Final = """\
M001 sgl-project/sglang/pull/21404 P1
M002 sgl-project/sglang/pull/23327 P1,P2
M003 sgl-project/sglang/pull/16067 P1,P14
M004 sgl-project/sglang/pull/19024 P14
M005 sgl-project/sglang/pull/20182 P1,P10
M007 sgl-project/sglang/pull/22213 P2,P14
M008 sgl-project/sglang/pull/23496 P3
M009 sgl-project/sglang/pull/26941 P3,P9
M010 sgl-project/sglang/pull/40044 P4
M011 sgl-project/sglang/pull/40250 P17
M012 sgl-project/sglang/pull/40250 P10,P15
M013 sgl-project/sglang/pull/38836 P4
M014 sgl-project/sglang/pull/21875 P13
M015 sgl-project/sglang/pull/21875 P5
M016 sgl-project/sglang/pull/22273 P11
M017 sgl-project/sglang/pull/20476 P1,P2
M018 sgl-project/sglang/pull/20557 P7
M019 sgl-project/sglang/pull/22862 P7,P8
M020 sgl-project/sglang/pull/22790 P11
M021 sgl-project/sglang/issues/27024 P12
M022 sgl-project/sglang/pull/27025 P10,P12
M023 sgl-project/sglang/issues/36475 P10,P11
M024 sgl-project/sglang/pull/36552 P10
M025 sgl-project/sglang/issues/31765 P10
M026 sgl-project/sglang/pull/31767 P11
M027 sgl-project/sglang/pull/40251 P10,P11
M028 sgl-project/sglang/pull/40252 P11
M029 sgl-project/sglang/pull/39035 P13
M030 sgl-project/sglang/pull/28140 P5,P13
M031 sgl-project/sglang/pull/27731 P14
M032 sgl-project/sglang/issues/24221 P6
M033 sgl-project/sglang/pull/24954 P9
M034 sgl-project/sglang/pull/29792 P6,P7
M037 sgl-project/sglang/issues/34786 P4
M038 sgl-project/sglang/pull/28986 P5
M039 sgl-project/sglang/issues/34676 P12,P19
M045 sgl-project/sglang/pull/17850 P5
M046 sgl-project/sglang/pull/30986 P9,P19
M047 sgl-project/sglang/pull/27038 P19
M048 sgl-project/sglang/issues/21379 P19
M050 sgl-project/sglang/pull/27586 P9
M051 sgl-project/sglang/pull/25805 P9
M054 sgl-project/sglang/issues/13483 P3
M055 sgl-project/sglang/pull/9927 P3
M056 sgl-project/sglang/pull/19035 P15
M058 sgl-project/sglang/issues/36855 P12
M059 sgl-project/sglang/issues/39645 P11
M060 sgl-project/sglang/issues/36333 P10
M062 sgl-project/sglang/pull/37077 P5
M063 sgl-project/sglang/pull/38961 P5,P13
M064 sgl-project/sglang/pull/36926 P5,P10
M068 sgl-project/sglang/issues/34572 P17
M069 sgl-project/sglang/issues/6857 P11,P13
M072 sgl-project/sglang/pull/34808 P7
M073 sgl-project/sglang/pull/35086 P7
M074 sgl-project/sglang/pull/29633 P7
M076 sgl-project/sglang/issues/40305 P14
M079 vllm-project/vllm/pull/56524 P9
M080 vllm-project/vllm/pull/56525 P6
M081 vllm-project/vllm/pull/37728 P4,P5
M082 vllm-project/vllm/issues/41841 P4,P9
M083 vllm-project/vllm/pull/33937 P4
M084 vllm-project/vllm/pull/48375 P8
M085 vllm-project/vllm/pull/46281 P7
M086 vllm-project/vllm/pull/55178 P8
M088 vllm-project/vllm/issues/39273 P8
M089 vllm-project/vllm/issues/53142 P7
M090 vllm-project/vllm/pull/57605 P8
M091 vllm-project/vllm/pull/51766 P6
M092 vllm-project/vllm/pull/35157 P9
M093 vllm-project/vllm/issues/53505 P7
M094 vllm-project/vllm/issues/45414 P12
M095 vllm-project/vllm/issues/45388 P12,P13
M096 vllm-project/vllm/pull/57104 P12
M097 vllm-project/vllm/issues/39734 P12
M098 vllm-project/vllm/issues/53130 P12
M099 vllm-project/vllm/pull/49439 P12
M100 vllm-project/vllm/issues/52693 P11
M101 vllm-project/vllm/pull/53861 P11,P13
M102 vllm-project/vllm/pull/57584 P9
M103 vllm-project/vllm/issues/37076 P19
M106 vllm-project/vllm/pull/32255 P5
M107 vllm-project/vllm/issues/46283 P13
M108 vllm-project/vllm/pull/45357 P5
M109 vllm-project/vllm-ascend/issues/16315 P5,P12
M111 vllm-project/vllm/pull/48245 P5
M112 vllm-project/vllm/pull/39833 P9
M113 vllm-project/vllm/issues/13129 P13
M114 vllm-project/vllm/issues/10693 P19
M115 vllm-project/vllm/pull/11565 P19
M117 vllm-project/vllm/issues/25538 P12
M118 vllm-project/vllm/issues/53084 P6,P7
M119 NVIDIA/TensorRT-LLM/pull/13151 P4
M121 NVIDIA/TensorRT-LLM/issues/14500 P18
M124 NVIDIA/TensorRT-LLM/pull/12313 P13
M125 NVIDIA/TensorRT-LLM/pull/11715 P10
M126 NVIDIA/TensorRT-LLM/pull/13713 P5
M127 NVIDIA/TensorRT-LLM/pull/14633 P5,P11
M130 ggml-org/llama.cpp/issues/25913 P16
M131 ggml-org/llama.cpp/pull/24003 P16
M132 ggml-org/llama.cpp/issues/27068 P16
M134 ggml-org/llama.cpp/issues/18552 P16
M135 ggml-org/llama.cpp/issues/26695 P8
M136 ggml-org/llama.cpp/issues/28425 P8
M137 ggml-org/llama.cpp/issues/27931 P8,P19
M138 ggml-org/llama.cpp/pull/18391 P10
M139 ggml-org/llama.cpp/issues/28019 P8
M140 ggml-org/llama.cpp/issues/28286 P8,P9
M141 ggml-org/llama.cpp/issues/27148 P15,P16
M142 ggml-org/llama.cpp/issues/25437 P3,P16
M143 ggml-org/llama.cpp/issues/13262 P10
M145 ikawrakow/ik_llama.cpp/issues/1929 P10,P15
M146 ggml-org/llama.cpp/issues/22997 P13
M148 InternLM/lmdeploy/issues/1788 P10
M149 InternLM/lmdeploy/issues/1619 P10
M151 InternLM/lmdeploy/pull/4541 P5
M152 InternLM/lmdeploy/pull/4434 P9
M153 mlc-ai/mlc-llm/pull/2750 P7
M154 mlc-ai/mlc-llm/issues/3145 P18
M155 huggingface/text-generation-inference/pull/2489 P6
M156 huggingface/text-generation-inference/issues/2192 P12,P18
M159 huggingface/transformers/pull/46117 P19
M160 huggingface/transformers/pull/48301 P18
M161 huggingface/transformers/pull/40479 P15,P18
M164 ai-dynamo/dynamo/issues/13691 P10
M165 ai-dynamo/dynamo/pull/14507 P5
M166 ai-dynamo/dynamo/issues/4178 P10
M169 ray-project/ray/pull/60118 P10
M170 ray-project/ray/issues/50046 P10
M171 ray-project/ray/issues/47935 P10
M172 LMCache/LMCache/issues/1034 P1
M173 LMCache/LMCache/issues/1130 P19
M174 LMCache/LMCache/issues/3381 P3
M175 LMCache/LMCache/pull/1215 P12
M178 LMCache/LMCache/pull/4600 P11
M179 LMCache/LMCache/pull/2879 P7
M181 LMCache/LMCache/pull/5062 P5
M182 LMCache/LMCache/pull/5249 P7
M183 GeeeekExplorer/nano-vllm/issues/144 P7,P11
M184 GeeeekExplorer/nano-vllm/pull/211 P19
M186 NVIDIA/Megatron-LM/pull/6584 P5
M187 vllm-project/tpu-inference/pull/2469 P4
M188 kekzl/imp/issues/1632 P3
M189 youssofal/MTPLX/issues/247 P2
M190 wtdcode/vllm-backport/pull/63 P5,P17
M191 google-ai-edge/LiteRT-LM/issues/2422 P10,P13
M192 tenstorrent/tt-inference-server/pull/3028 P19
"""


def _entry(line: str) -> Entry:
    name, place, patterns = line.split()
    repository, _, number = place.rsplit("/", 2)
    address = f"{repository}#{number}"
    return Entry(name, address, f"https://github.com/{place}", tuple(patterns.split(",")))


ENTRIES: Final = {entry.id: entry for entry in map(_entry, _TABLE.splitlines())}
