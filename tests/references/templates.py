#!/usr/bin/env python3
"""Renders chat templates with Python's jinja2, as Hugging Face's transformers does, for a comparison with bespoke-chat.

    templates.py FOLDER OUT.json

Renders each `*.jinja` of FOLDER with each conversation of `CASES`. OUT.json has the conversations and, for each
template and conversation, one of: `text`; `raised`, the message of the template's `raise_exception`; `error`, another
error of Python. A template with a syntax error has one result without a conversation.
`cargo run -p bespoke-chat --example templates -- FOLDER OUT.json` compares.

Needs the packages jinja2 and transformers. The clock of `strftime_now` is fixed.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2024, 7, 26, 15, 4, 9)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather, in °C or °F; \"now\" & <here>, that's it.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. Zürich"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": ["integer", "null"], "minimum": 1, "maximum": 7.5, "nullable": True},
                "places": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
                },
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}


def said(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, number="1"):
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = said("system", "You are a terse assistant.")
HELLO, ANSWER, AGAIN = said("user", "Hello"), said("assistant", "Hi there."), said("user", "And now?")
ASK = said("user", "What is the weather in Zürich?")
CALL = said("assistant", "", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2, "exact": True, "at": None})])
RESULT = said("tool", '{"temperature": 21.5}', name="get_weather", tool_call_id="call00001")
PARTS = said("user", [{"type": "text", "text": "First. "}, {"type": "text", "text": "Second."}])

CASES = {
    "user": {"messages": [HELLO]},
    "no generation prompt": {"messages": [SYSTEM, HELLO, ANSWER], "add_generation_prompt": False},
    "system": {"messages": [SYSTEM, HELLO]},
    "turns": {"messages": [SYSTEM, HELLO, ANSWER, AGAIN]},
    "turns without system": {"messages": [HELLO, ANSWER, AGAIN, said("assistant", "Later."), said("user", "Why?")]},
    "empty content": {"messages": [said("system", ""), said("user", ""), said("assistant", ""), said("user", "")]},
    "parts": {"messages": [SYSTEM, PARTS, ANSWER, PARTS]},
    "parts everywhere": {
        "messages": [said("system", [{"type": "text", "text": "Be brief."}]), PARTS,
                     said("assistant", [{"type": "text", "text": "Fine."}]), HELLO]
    },
    "image": {"messages": [said("user", [{"type": "image"}, {"type": "text", "text": "What is this?"}])]},
    "unicode": {"messages": [said("system", "Sé breve. 请简短。"), said("user", "Zürich 🏔️ é \u200d\u00a0 𝔘 \t end")]},
    "white space": {"messages": [said("system", "  a \n"), said("user", "\n\n x  \n y \r\n"), said("assistant", " z "), HELLO]},
    "markers": {"messages": [said("user", "{{ bos_token }} {% if %} <|im_start|> [INST] </think> \\n \"q\" 'q'"), ANSWER, HELLO]},
    "thought in content": {"messages": [HELLO, said("assistant", "<think>\nHm.\n</think>\n\nHi."), AGAIN]},
    "reasoning": {"messages": [HELLO, said("assistant", "Hi.", reasoning_content="They greet."), AGAIN]},
    "thinking off": {"messages": [SYSTEM, HELLO], "enable_thinking": False},
    "thinking on": {"messages": [SYSTEM, HELLO], "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "tools": {"messages": [ASK], "tools": [WEATHER, CLOCK]},
    "tools and system": {"messages": [SYSTEM, ASK], "tools": [WEATHER]},
    "tool call": {"messages": [ASK, CALL, RESULT], "tools": [WEATHER, CLOCK]},
    "tool call with system": {"messages": [SYSTEM, ASK, CALL, RESULT, said("assistant", "21.5 °C."), AGAIN], "tools": [WEATHER]},
    "tool call as text": {
        "messages": [ASK, said("assistant", None, tool_calls=[call("get_weather", '{"city": "Zürich"}')]), RESULT],
        "tools": [WEATHER],
    },
    "several tool calls": {
        "messages": [ASK, said("assistant", "Let me see.", tool_calls=[call("get_weather", {"city": "Bern"}),
                                                                      call("clock", {}, "2")]),
                     RESULT, said("tool", "12:00", name="clock", tool_call_id="call00002")],
        "tools": [WEATHER, CLOCK],
    },
    "tool result as parts": {
        "messages": [ASK, CALL, said("tool", [{"type": "text", "text": "21.5"}], name="get_weather", tool_call_id="call00001")],
        "tools": [WEATHER],
    },
    "no content key": {"messages": [ASK, {"role": "assistant", "tool_calls": CALL["tool_calls"]}, RESULT], "tools": [WEATHER]},
    "tool call without tools": {"messages": [ASK, CALL, RESULT]},
    "no tools": {"messages": [HELLO], "tools": []},
    "documents": {
        "messages": [SYSTEM, HELLO],
        "documents": [{"title": "One", "text": "First text."}, {"title": "Two", "text": "Second\ntext."}],
    },
    "two questions": {"messages": [HELLO, AGAIN]},
    "answer first": {"messages": [ANSWER, HELLO]},
    "answer last": {"messages": [HELLO, ANSWER]},
    "late system": {"messages": [HELLO, ANSWER, SYSTEM, AGAIN]},
    "developer": {"messages": [said("developer", "Be brief."), HELLO]},
    "unknown role": {"messages": [HELLO, said("narrator", "It rained.")]},
    "only system": {"messages": [SYSTEM]},
    "nothing": {"messages": []},
    "null content": {"messages": [said("user", None)]},
}

for inputs in CASES.values():
    inputs.setdefault("tools", None)
    inputs.setdefault("documents", None)
    inputs.setdefault("add_generation_prompt", True)
    inputs.update(bos_token="<s>", eos_token="</s>")


def render(template, inputs):
    """The text, or the error, of a template for a conversation."""
    inputs = chat_template_utils._plain_template_data(inputs)
    inputs["messages"] = chat_template_utils._alias_reasoning_fields(inputs["messages"])
    try:
        return {"text": template.render(**inputs)}
    except jinja2.TemplateError as error:
        kind = "raised" if type(error) is jinja2.TemplateError else "error"
        return {kind: str(error.message) if kind == "raised" else f"{type(error).__name__}: {error}"}
    except Exception as error:  # Python's own errors: of types, keys and values.
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    results = []
    for path in sorted(folder.glob("*.jinja")):
        try:
            template = chat_template_utils._compile_jinja_template(path.read_bytes().decode())
        except jinja2.TemplateSyntaxError as error:
            results.append({"template": path.name, "error": f"line {error.lineno}: {error.message}"})
            continue
        template.environment.globals["strftime_now"] = NOW.strftime
        template.globals["strftime_now"] = NOW.strftime
        results += [{"template": path.name, "case": case} | render(template, inputs) for case, inputs in CASES.items()]
    document = {"now": NOW.isoformat(), "cases": CASES, "results": results}
    out.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    counts = {key: sum(key in result for result in results) for key in ("text", "raised", "error")}
    print(f"{len(set(result['template'] for result in results))} templates, {len(CASES)} conversations: {counts}")


main()
