"use strict";
// A conversation with the server's model, and what the server does meanwhile.
const at = (id) => document.getElementById(id);
const conversation = [];
let running = null;
// Number of times that the conversation was cleared: answers to an earlier one are dropped.
let generation = 0;

/// A request to the server, with the key if one was given.
async function ask(path, options = {}) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) at("key-row").hidden = false;
  if (!response.ok) {
    const error = await response.json().catch(() => null);
    throw new Error(error?.error?.message ?? `the server answers ${response.status}`);
  }
  return response;
}

/// Adds a message to the page; returns its paragraph.
function show(role, text) {
  const paragraph = document.createElement("p");
  paragraph.className = role;
  paragraph.textContent = text;
  at("messages").append(paragraph);
  paragraph.scrollIntoView({ block: "nearest" });
  return paragraph;
}

/// Data of the events of a response, one by one.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
    }
  }
}

async function send(text) {
  conversation.push({ role: "user", content: text });
  show("user", text);
  const paragraph = show("assistant", "");
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  const body = {
    messages: conversation, stream: true, stream_options: { include_usage: true },
    temperature: number("temperature"), max_tokens: number("tokens"),
  };
  const own = generation;
  const aborter = (running = new AbortController());
  at("send").hidden = true;
  at("stop").hidden = false;
  const start = performance.now();
  let answer = "", note = "";
  try {
    const response = await ask("v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: aborter.signal });
    for await (const event of events(response)) {
      if (own !== generation) return;
      if (event.error) throw new Error(event.error.message);
      answer += event.choices[0]?.delta.content ?? "";
      if (event.choices[0]?.finish_reason === "length") note = "cut off; ";
      paragraph.textContent = answer;
      paragraph.scrollIntoView({ block: "nearest" });
      if (event.usage) {
        const { prompt_tokens, prompt_tokens_details, completion_tokens } = event.usage;
        const seconds = (performance.now() - start) / 1000;
        note += `${prompt_tokens} prompt tokens (${prompt_tokens_details.cached_tokens} cached), ${completion_tokens} in ${seconds.toFixed(1)} s`;
      }
    }
  } catch (error) {
    if (own !== generation) return;
    if (error.name === "AbortError") note = "stopped";
    else show("error", error.message);
  }
  if (own !== generation) return;
  const small = document.createElement("small");
  small.textContent = note;
  if (note) paragraph.after(small);
  if (answer) conversation.push({ role: "assistant", content: answer });
  else {
    conversation.pop();
    paragraph.remove();
  }
  idle();
}

/// Lets the next message be sent.
function idle() {
  running = null;
  at("send").hidden = false;
  at("stop").hidden = true;
  at("text").focus();
}

let before = null;

/// Reads the metrics, and shows the changes since the last time.
async function watch() {
  try {
    const text = await (await ask("metrics")).text();
    const value = (name) => Number(text.split("\n").find((line) => line.startsWith(`${name} `))?.split(" ")[1] ?? 0);
    const now = { time: performance.now(), tokens: value("bespoke_generated_tokens_total") };
    if (before) at("rate").textContent = (((now.tokens - before.tokens) * 1000) / (now.time - before.time)).toFixed(1);
    before = now;
    at("running").textContent = value('bespoke_sequences{state="running"}');
    at("waiting").textContent = value('bespoke_sequences{state="waiting"}');
    const [free, cached, used] = ["free", "cached", "used"].map((state) => value(`bespoke_pages{state="${state}"}`));
    const all = free + cached + used;
    at("cache").textContent = all ? `${Math.round((100 * used) / all)} % (${Math.round((100 * cached) / all)} % kept)` : "0 %";
  } catch {
    before = null;
    at("rate").textContent = "–";
  }
}

async function facts() {
  try {
    const props = await (await ask("props")).json();
    at("model").textContent = document.title = props.model;
    at("facts").textContent = `context ${props.context}, ${props.parallel} at once, vocabulary ${props.vocabulary}`;
    at("temperature").placeholder = props.defaults.temperature;
  } catch (error) {
    at("facts").textContent = error.message;
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (!text || running) return;
  at("text").value = "";
  send(text);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    at("form").requestSubmit();
  }
});
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  generation += 1;
  conversation.length = 0;
  at("messages").replaceChildren();
  idle();
});
at("key").addEventListener("change", facts);
facts();
watch();
setInterval(watch, 1000);
