"""Chat templates in the shapes that models in use have: their marks, their order, their whims."""

import attrs

__all__ = ["SPECIAL", "TEMPLATES", "Shape"]

SPECIAL = (
    *("<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|startoftext|>"),
    *("<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "[/TOOL_RESULTS]"),
)
"""Special tokens of all of them together; a test's tokenizer knows every one."""


@attrs.frozen
class Shape:
    """A template, and what it is like."""

    source: str
    bos: str
    end: str
    """The token that closes an answer."""
    keeps_text: bool = True
    """It writes what was said as it was said: trims nothing, drops nothing."""
    closes: bool = True
    """It closes an answer by a token; else by spaces only."""
    alternates: bool = False
    """It refuses two messages of one role in a row."""
    has_system: bool = True
    has_tools: bool = False


CHATML = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

DEFAULT_SYSTEM = """{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou are a small model that helps.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""

QWEN3 = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' }}{{- tool | tojson }}
    {%- endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set thoughts = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thoughts = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and thoughts %}
            {{- '<|im_start|>assistant\\n<think>' + thoughts + '</think>\\n' + content }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function if call.function else call %}
            {{- '\\n<tool_call>{"name": "' + call.name + '", "arguments": ' }}
            {{- call.arguments if call.arguments is string else call.arguments | tojson }}
            {{- '}</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = strftime_now('%d %b %Y') %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: ' + date_string + '\\n\\n' }}
{{- system + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
    {{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}{% if loop.index0 == 0 and system_message %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}
{{- bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{{- ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"""

MISTRAL = """{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] %}{%- set rest = messages[1:] %}
{%- else %}{%- set rest = messages %}{%- endif %}
{{- bos_token }}
{%- for message in rest %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, roles must alternate!') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if tools is not none and loop.last %}
            {{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}
        {%- endif %}
        {%- if loop.last and system is defined %}
            {{- '[INST] ' + system + '\\n\\n' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST] ' + message['content'] + '[/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""

GRANITE = """{%- for message in messages %}
{{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + message['content'] }}
{{- '<|end_of_text|>\\n' }}
{%- if loop.last and add_generation_prompt %}
{{- '<|start_of_role|>assistant<|end_of_role|>' }}
{%- endif %}{%- endfor %}"""

FALCON_H1 = """{{bos_token}}
{%- if tools %}
{{- '<|im_start|>system\\nYou may call these functions:\\n<tools>' + tools | tojson + '</tools>' }}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>' + message.content + '</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""

LFM2 = """{{- bos_token -}}
{%- set keep = keep_past_thinking | default(false) -%}
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}
    {%- if message['role'] == 'assistant' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {{- '<|im_start|>' + message['role'] + '\\n' -}}
    {%- set content = message['content'] -%}
    {%- if content is not string -%}{%- set content = content | tojson -%}{%- endif -%}
    {%- if message['role'] == 'assistant' and not keep and loop.index0 != ns.last -%}
        {%- if '</think>' in content -%}
            {%- set content = content.split('</think>')[-1] | trim -%}
        {%- endif -%}
    {%- endif -%}
    {{- content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

NEMOTRON = """{{- bos_token + '<SPECIAL_10>System\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content | trim }}{%- endif %}
{{- '\\n' }}
{%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<SPECIAL_11>User\\n' + message.content | trim + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}{%- set content = content.split('</think>')[1] %}{%- endif %}
        {{- '<SPECIAL_11>Assistant\\n' + content | trim + '\\n<SPECIAL_12>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<SPECIAL_11>Assistant\\n' }}{%- endif %}"""

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

WITH_GENERATION = """{%- for message in messages -%}
{%- if message.role == 'assistant' -%}
    {{- '<|im_start|>assistant\\n' -}}
    {%- generation -%}{{- message.content + '<|im_end|>' -}}{%- endgeneration -%}
    {{- '\\n' -}}
    {%- continue -%}
{%- endif -%}
{{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

PLAIN = """{% for message in messages %}{{ message.role | title }}: {{ message.content }}

{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"""

TEMPLATES: dict[str, Shape] = {
    "chatml": Shape(CHATML, "<|endoftext|>", "<|im_end|>"),
    "default system": Shape(DEFAULT_SYSTEM, "<|endoftext|>", "<|im_end|>"),
    "qwen3": Shape(QWEN3, "<|endoftext|>", "<|im_end|>", has_tools=True),
    "llama3": Shape(LLAMA3, "<|begin_of_text|>", "<|eot_id|>", keeps_text=False),
    "llama2": Shape(LLAMA2, "<s>", "</s>", keeps_text=False, alternates=True),
    "mistral": Shape(
        MISTRAL, "<s>", "</s>", keeps_text=False, alternates=True, has_system=False, has_tools=True
    ),
    "granite": Shape(GRANITE, "<|end_of_text|>", "<|end_of_text|>"),
    "falcon h1": Shape(FALCON_H1, "<|begin_of_text|>", "<|im_end|>", has_tools=True),
    "lfm2": Shape(LFM2, "<|startoftext|>", "<|im_end|>"),
    "nemotron": Shape(NEMOTRON, "<s>", "<SPECIAL_12>", keeps_text=False),
    "zephyr": Shape(ZEPHYR, "<s>", "</s>"),
    "with generation": Shape(WITH_GENERATION, "<s>", "<|im_end|>"),
    "plain": Shape(PLAIN, "<s>", "</s>", closes=False),
}
