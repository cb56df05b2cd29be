"""The scripted model itself: what it is asked and what it answers, in each of its formats."""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from tests.agents.llm import Call, Fail, Hang, Mcp, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.wires import Json

SHELL = {"name": "bash", "description": "", "input_schema": {"type": "object"}}


def asked(wire: str, prompt: str = "Go.", *results: str, stream: bool = False, tools: bool = True) -> tuple[str, Json]:
    """A request in one of the formats, with results of tools in its history."""
    if wire == "anthropic":
        blocks = [
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": r}]} for r in results
        ]
        return "/v1/messages", {
            "model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}, *blocks],
            "tools": [SHELL] if tools else [],
        }  # fmt: skip
    if wire == "chat":
        rows = [{"role": "tool", "tool_call_id": "t", "content": result} for result in results]
        return "/v1/chat/completions", {
            "model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}, *rows],
            "tools": [{"type": "function", "function": {"name": "bash"}}] if tools else [],
        }  # fmt: skip
    if wire == "responses":
        items = [{"type": "function_call_output", "call_id": "t", "output": result} for result in results]
        return "/v1/responses", {
            "model": "m", "stream": stream, "input": [{"role": "user", "content": prompt}, *items],
            "tools": [{"type": "function", "name": "bash"}, {"type": "namespace", "name": "mcp__every",
                      "tools": [{"name": "get_env"}]}] if tools else [],
        }  # fmt: skip
    parts = [
        {"role": "user", "parts": [{"functionResponse": {"name": "bash", "response": {"output": r}}}]} for r in results
    ]
    method = "streamGenerateContent" if stream else "generateContent"
    return f"/v1beta/models/m:{method}", {
        "contents": [{"role": "user", "parts": [{"text": prompt}]}, *parts],
        "tools": [{"functionDeclarations": [{"name": "bash"}]}] if tools else [],
    }  # fmt: skip


def post(llm: ScriptedLlm, request: tuple[str, Json]) -> str:
    path, body = request
    call = urllib.request.Request(llm.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(call, timeout=60) as response:
        return str(response.read().decode())


def values(value: object, name: str) -> Iterator[object]:
    """Everything with this name, at any depth."""
    if isinstance(value, dict):
        yield from (inner for key, inner in value.items() if key == name)
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from values(inner, name)


WIRES = pytest.mark.parametrize("wire", ["anthropic", "chat", "responses", "gemini"])
STREAMING = pytest.mark.parametrize("stream", [False, True])
OUTPUT = {"anthropic": "output_tokens", "chat": "completion_tokens", "responses": "output_tokens",
          "gemini": "candidatesTokenCount"}  # fmt: skip


@WIRES
@STREAMING
def test_it_calls_a_tool_first_and_speaks_when_there_is_a_result(wire: str, stream: bool) -> None:
    with ScriptedLlm(steps(Shell("make"), Say("Finished."))) as llm:
        first = post(llm, asked(wire, stream=stream))
        second = post(llm, asked(wire, "Go.", "fine", stream=stream))

        assert "bash" in first
        assert "Fin" in second
        assert llm.requests[1].results[0].count("fine") == 1
        assert llm.offered() >= {"bash"}
        assert llm.usage().requests == 2


@WIRES
def test_what_it_counts_is_what_it_tells(wire: str) -> None:
    with ScriptedLlm() as llm:
        answers = [json.loads(post(llm, asked(wire))) for _ in range(3)]

        told = [next(values(answer, OUTPUT[wire])) for answer in answers]
        assert sum(map(int, map(str, told))) == llm.usage().output
        assert len(set(told)) == 3
        assert llm.by_model()["m"].requests == 3


@WIRES
def test_it_fails_as_often_as_it_is_told(wire: str) -> None:
    with ScriptedLlm() as llm:
        llm.fail(429, times=1, retry_after=3)
        with pytest.raises(urllib.error.HTTPError) as caught:
            post(llm, asked(wire))
        assert (caught.value.code, caught.value.headers["retry-after"]) == (429, "3")
        caught.value.close()
        post(llm, asked(wire))

        assert llm.statuses() == [429, 200]
        assert llm.usage().requests == 1


@WIRES
def test_it_breaks_in_the_middle_of_a_stream(wire: str) -> None:
    with ScriptedLlm(steps(Fail(529, "too busy", midstream=True))) as llm:
        assert "too busy" in post(llm, asked(wire, stream=True))
        assert llm.usage().requests == 0


@WIRES
@STREAMING
def test_it_hangs_until_it_is_released(wire: str, stream: bool) -> None:
    with ScriptedLlm(steps(Hang(Say("Later.")))) as llm:
        answers: list[str] = []
        client = threading.Thread(target=lambda: answers.append(post(llm, asked(wire, stream=stream))))
        client.start()
        llm.wait_hanging()
        assert (answers, llm.usage().requests) == ([], 0)

        llm.release()
        client.join(60)

        assert len(answers) == 1
        assert llm.usage().requests == 1


@WIRES
def test_a_request_that_offers_no_tools_gets_words(wire: str) -> None:
    with ScriptedLlm(steps(Shell("make"), Say("Finished."))) as llm:
        assert "Fine." in post(llm, asked(wire, tools=False))


def test_several_calls_are_one_message_and_all_their_results_are_waited_for() -> None:
    with ScriptedLlm(steps([Call("bash", {"n": 1}), Call("bash", {"n": 2})], Say("Finished."))) as llm:
        assert len(json.loads(post(llm, asked("anthropic")))["content"]) == 2
        assert len(json.loads(post(llm, asked("anthropic", "Go.", "one")))["content"]) == 2
        assert "Finished." in post(llm, asked("anthropic", "Go.", "one", "two"))


def test_the_marker_in_the_last_prompt_decides() -> None:
    with ScriptedLlm(routes({"[a]": steps(Say("For a.")), "[b]": steps(Say("For b."))})) as llm:
        assert "For b." in post(llm, asked("anthropic", "Do [b]."))
        assert "Fine." in post(llm, asked("anthropic", "Do it."))


def test_a_tool_of_a_server_is_called_as_the_client_names_it() -> None:
    with ScriptedLlm(steps(Mcp("every", "get-env"), Say("Done."))) as llm:
        [call] = json.loads(post(llm, asked("responses")))["output"]
        assert (call["namespace"], call["name"]) == ("mcp__every", "get_env")
        [block] = json.loads(post(llm, asked("anthropic")))["content"]
        assert block["name"] == "mcp__every__get-env"


def test_a_reminder_beside_results_is_no_new_prompt_but_words_after_one_are() -> None:
    path, body = asked("anthropic", "Go.", "fine")
    reminder = {"type": "text", "text": "<system-reminder>Be brief.</system-reminder>"}
    with ScriptedLlm(steps(Shell("make"), Say("Finished."))) as llm:
        body["messages"].append({"role": "user", "content": [reminder]})
        assert "Finished." in post(llm, (path, body))

        words = {"type": "text", "text": reminder["text"] + "\nGo on."}
        body["messages"] += [{"role": "assistant", "content": "Finished."}, {"role": "user", "content": [words]}]
        assert "tool_use" in post(llm, (path, body))
