//! What a server does besides answering one request after another.

#![cfg(unix)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bespoke::speculation::Speculation;
use bespoke_serve::{Keys, Listen, Options, Server};
use support::{Failure, Sizes, Stream, TEXT, model, options, reciter, send, serve, start, tokenizer};

const COMPLETIONS: &str = "/v1/completions";
/// A request for a stream as long as the context allows.
const LONG: &str = r#"{"prompt": "Hello", "max_tokens": 100000, "stream": true}"#;
const SHORT: &str = r#"{"prompt": "Hello", "max_tokens": 2}"#;

/// Text of a stream's events.
fn text(events: &[&str]) -> String {
    let event = |event: &&str| serde_json::from_str::<serde_json::Value>(event).ok();
    let texts = events.iter().filter_map(event);
    texts.filter_map(|event| event["choices"][0]["text"].as_str().map(str::to_owned)).collect()
}

#[test]
fn a_request_needs_one_of_the_keys() {
    let server = start(Options { keys: Keys::parse("sk-one\nsk-two"), ..options() }, &Sizes::default());
    for (header, status) in [
        ("", 401),
        ("Authorization: Bearer sk-three\r\n", 401),
        ("Authorization: Bearer \r\n", 401),
        ("Authorization: Basic sk-one\r\n", 401),
        ("Authorization: Bearer sk-one\r\n", 200),
        ("authorization: bearer sk-two\r\n", 200),
    ] {
        for path in ["/v1/models", "/metrics", "/props"] {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
            let reply = send(&server.address, &request);
            assert_eq!(reply.status, status, "{path} {header}");
            if status == 401 {
                assert_eq!(
                    (reply.code().as_str(), reply.header("www-authenticate")),
                    ("invalid_api_key", "Bearer")
                );
                assert_eq!(reply.json()["error"]["type"], "authentication_error");
            }
        }
    }
    // Also for paths that do not exist; a load balancer needs no key.
    assert_eq!((server.get("/nothing").status, server.get("/health").status), (401, 200));
}

#[test]
fn until_the_model_is_loaded_requests_are_told_so() {
    let server = Server::start(options()).unwrap();
    let address = server.address().to_owned();
    for request in ["GET /health", "GET /v1/models", "POST /v1/completions"] {
        let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let reply = send(&address, &request);
        assert_eq!((reply.status, reply.code().as_str()), (503, "loading"), "{request}");
        assert_eq!(reply.header("retry-after"), "1");
    }
    let (steps, pace) = reciter(&tokenizer(), &Sizes::default());
    let server = serve(server, model(), steps, pace);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
}

#[test]
fn a_full_queue_refuses_and_recovers() {
    let sizes = Sizes { slots: 1, ..Sizes::default() };
    let server = start(Options { queue: 1, ..options() }, &sizes);
    server.pace.allow(3);
    let (first, second) = (server.stream(COMPLETIONS, LONG), server.stream(COMPLETIONS, LONG));
    let refused = server.post(COMPLETIONS, SHORT);
    assert_eq!((refused.status, refused.code().as_str()), (429, "queue_full"));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    assert_eq!(refused.header("retry-after"), "1");
    assert_eq!(server.metric("bespoke_refused_total"), 1.0);
    // A client that leaves gives its place back.
    drop(second);
    server.pace.open();
    assert_eq!(text(&first.rest().events()).len(), text_of(253).len());
    server.wait_for("a place is free", || server.post(COMPLETIONS, SHORT).status == 200);
}

/// A sequence that waited for its slot and then took no time says nothing about how long sequences take.
#[test]
fn the_time_to_try_again_does_not_include_the_wait_for_a_slot() {
    let server = start(Options { queue: 1, ..options() }, &Sizes { slots: 1, ..Sizes::default() });
    server.pace.allow(3);
    let first = server.stream(COMPLETIONS, LONG);
    let second = server.stream(COMPLETIONS, &SHORT.replace('}', r#", "stream": true}"#));
    // The scheduler gets the second sequence between two steps.
    for _ in 0..25 {
        server.pace.allow(1);
        std::thread::sleep(Duration::from_millis(100));
    }
    // Only the second one counts: the first one is cancelled.
    drop(first);
    server.wait_for_metric("bespoke_connections", 2.0);
    server.pace.open();
    assert_eq!(second.rest().events().last(), Some(&"[DONE]"));
    server.wait_for("both places are free", || server.metric("bespoke_cancelled_total") == 1.0);
    server.pace.allow(3);
    let _running = [server.stream(COMPLETIONS, LONG), server.stream(COMPLETIONS, LONG)];
    let refused = server.post(COMPLETIONS, SHORT);
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
}

/// The first tokens of the answer, as a text.
fn text_of(tokens: usize) -> String {
    let tokenizer = tokenizer();
    let one = tokenizer.encode(TEXT).unwrap();
    let tokens: Vec<u32> = one.iter().cycle().take(tokens).copied().collect();
    tokenizer.decode(&tokens)
}

#[test]
fn a_client_that_goes_away_frees_its_pages() {
    let server = start(options(), &Sizes::default());
    server.pace.allow(5);
    let mut stream = server.stream(COMPLETIONS, LONG);
    assert!(stream.line().unwrap().contains("The"));
    assert_eq!(server.metric("bespoke_sequences{state=\"running\"}"), 1.0);
    drop(stream);
    // The server notices while the engine waits; the connection that is left asks for the metric.
    server.wait_for_metric("bespoke_connections", 1.0);
    server.pace.open();
    server.wait_for_metric("bespoke_cancelled_total", 1.0);
    server.wait_for_metric("bespoke_pages{state=\"used\"}", 0.0);
    let steps = server.pace.steps();
    assert!(steps < 20, "the answer went on for {steps} steps");
}

#[test]
fn a_client_that_goes_away_before_the_answer_begins_frees_its_pages() {
    let server = start(options(), &Sizes::default());
    // A prompt of 160 tokens is 10 prefill steps of 16.
    server.pace.allow(3);
    let body = format!(r#"{{"prompt": {:?}, "max_tokens": 50}}"#, vec![7; 160]);
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = std::net::TcpStream::connect(server.address.trim_start_matches("http://")).unwrap();
    std::io::Write::write_all(&mut socket, head.as_bytes()).unwrap();
    server.wait_for("prefill steps run", || server.pace.steps() == 3);
    drop(socket);
    // The server notices while the engine waits; the connection that is left asks for the metric.
    server.wait_for_metric("bespoke_connections", 1.0);
    server.pace.open();
    server.wait_for_metric("bespoke_cancelled_total", 1.0);
    server.wait_for_metric("bespoke_pages{state=\"used\"}", 0.0);
    assert_eq!(server.metric("bespoke_generated_tokens_total"), 0.0);
}

#[test]
fn a_client_that_does_not_read_stalls_nobody_and_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    // A UNIX socket holds about 200 kB, less than this answer.
    let listen = Listen::Unix(folder.path().join("socket"));
    let sizes = Sizes { slots: 2, context: 20_000, pages: 640, ..Sizes::default() };
    let server = start(Options { listen, backlog: 100, ..options() }, &sizes);
    let slow = server.stream(COMPLETIONS, LONG);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    server.wait_for_metric("bespoke_slow_readers_total", 1.0);
    assert!(server.metric("bespoke_generated_tokens_total") < 19_000.0);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    // What was generated before is there, and then the reason.
    let reply = slow.rest();
    let events = reply.events();
    assert!(text_of(20_000).starts_with(&text(&events)) && events.len() > 100);
    assert!(events.last().unwrap().contains(r#""code":"slow_reader""#), "{:?}", events.last());
}

#[test]
fn a_request_ends_when_its_time_is_over() {
    let server = start(Options { timeout: Duration::from_millis(200), ..options() }, &Sizes::default());
    server.pace.allow(4);
    let whole = server.post(COMPLETIONS, r#"{"prompt": "Hello", "max_tokens": 50}"#);
    assert_eq!((whole.status, whole.code().as_str()), (504, "timeout"));
    // OpenAI's clients would send it again.
    assert_eq!(whole.header("x-should-retry"), "false");
    let reply = server.stream(COMPLETIONS, LONG).rest();
    assert!(reply.events().last().unwrap().contains(r#""code":"timeout""#), "{}", reply.body);
    server.pace.open();
    server.wait_for_metric("bespoke_pages{state=\"used\"}", 0.0);
}

/// The time of a request begins when it has arrived, also while its prompt is prepared.
#[test]
fn the_time_of_a_request_includes_the_preparation_of_its_prompt() {
    fn slowly(text: &str) -> String {
        std::thread::sleep(Duration::from_secs(2));
        text.to_owned()
    }
    let timeout = Duration::from_millis(300);
    let server = Server::start(Options { timeout, ..options() }).unwrap();
    let (steps, pace) = reciter(&tokenizer(), &Sizes::default());
    let server = serve(server, bespoke_serve::Model { normalise: slowly, ..model() }, steps, pace);
    let start = Instant::now();
    for path in [COMPLETIONS, "/v1/chat/completions", "/tokenize"] {
        let body = match path {
            COMPLETIONS => SHORT,
            _ => r#"{"messages": [{"role": "user", "content": "Hello"}]}"#,
        };
        let reply = server.post(path, body);
        assert_eq!((reply.status, reply.code().as_str()), (504, "timeout"), "{path}");
        assert_eq!(reply.header("x-should-retry"), "false");
    }
    assert!(start.elapsed() < Duration::from_secs(5), "the answers waited for the work");
    // What was prepared too late does not run.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!((server.pace.steps(), server.metric("bespoke_sequences{state=\"waiting\"}")), (0, 0.0));
}

#[test]
fn a_waiting_stream_gets_comments() {
    let server = start(Options { keep_alive: Duration::from_millis(20), ..options() }, &Sizes::default());
    server.pace.allow(0);
    let mut stream = server.stream(COMPLETIONS, LONG);
    assert_eq!(stream.line().as_deref(), Some(": keep-alive"));
    server.pace.open();
    let reply = stream.rest();
    assert_eq!(text(&reply.events()), text_of(253));
}

#[test]
fn streams_are_finished_before_a_server_ends() {
    let mut server = start(options(), &Sizes { slots: 2, ..Sizes::default() });
    server.pace.allow(4);
    let streams: Vec<Stream> = (0..4).map(|_| server.stream(COMPLETIONS, LONG)).collect();
    server.handle.shut_down();
    server.wait_for("the socket is closed", || {
        std::net::TcpStream::connect(server.address.trim_start_matches("http://")).is_err()
    });
    server.pace.open();
    for stream in streams {
        let reply = stream.rest();
        assert_eq!(reply.events().last(), Some(&"[DONE]"), "{}", reply.body);
        assert_eq!(text(&reply.events()).len(), text_of(253).len());
    }
    server.ended().unwrap();
}

#[test]
fn streams_that_take_too_long_are_told_that_the_server_ends() {
    let grace = Duration::from_millis(100);
    let mut server = start(Options { grace, ..options() }, &Sizes { slots: 1, ..Sizes::default() });
    server.pace.allow(4);
    let running = server.stream(COMPLETIONS, LONG);
    let waiting = server.stream(COMPLETIONS, LONG);
    let start = Instant::now();
    server.handle.shut_down();
    for stream in [running, waiting] {
        let reply = stream.rest();
        let last = reply.events().last().copied().unwrap_or_default().to_owned();
        assert!(last.contains(r#""code":"shutting_down""#), "{}", reply.body);
    }
    assert!(start.elapsed() < Duration::from_secs(20));
    server.pace.open();
    server.ended().unwrap();
}

#[test]
fn a_server_starts_again_on_the_same_port() {
    let first = start(options(), &Sizes::default());
    let port: u16 = first.address.rsplit(':').next().unwrap().parse().unwrap();
    let again = || Options { listen: Listen::Tcp { host: "127.0.0.1".to_owned(), port }, ..options() };
    let message = Server::start(again()).unwrap_err().to_string();
    assert!(message.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{message}");
    let stream = first.stream(COMPLETIONS, LONG);
    first.end().unwrap();
    assert_eq!(stream.rest().events().last(), Some(&"[DONE]"));
    let second = start(again(), &Sizes::default());
    assert_eq!(second.post(COMPLETIONS, SHORT).status, 200);
}

#[test]
fn a_socket_file_is_replaced_if_nobody_listens_and_removed_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listen = Listen::Unix(path.clone());
    let server = start(Options { listen: listen.clone(), ..options() }, &Sizes::default());
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    assert!(Server::start(Options { listen, ..options() }).is_err(), "somebody listens");
    server.end().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_failed_step_loses_its_sequences_and_the_next_one_works() {
    let server = start(options(), &Sizes::default());
    server.pace.fail(Some(Failure::Once));
    let reply = server.post(COMPLETIONS, SHORT);
    assert_eq!((reply.status, reply.code().as_str()), (500, "engine_failed"));
    assert!(reply.body.contains("the device is gone"), "{}", reply.body);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    assert_eq!(server.metric("bespoke_engine_failures_total"), 1.0);
}

#[test]
fn a_device_that_does_not_recover_ends_the_server() {
    let mut server = start(options(), &Sizes::default());
    server.pace.fail(Some(Failure::Always));
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 500);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 500);
    assert!(server.ended().unwrap_err().to_string().contains("the device is still gone"));
}

#[test]
fn a_panic_while_decoding_ends_requests_and_the_server_with_an_error() {
    let mut server = start(options(), &Sizes { slots: 1, ..Sizes::default() });
    server.pace.allow(3);
    let streams: Vec<Stream> = (0..3).map(|_| server.stream(COMPLETIONS, LONG)).collect();
    server.pace.fail(Some(Failure::Panic));
    server.pace.open();
    for stream in streams {
        let reply = stream.rest();
        let last = reply.events().last().copied().unwrap_or_default().to_owned();
        assert!(last.contains(r#""code":"engine_failed""#) && last.contains("a bug in the server"), "{last}");
        assert!(!last.contains("the text of a prompt"), "{last}");
    }
    let error = server.ended().unwrap_err().to_string();
    assert_eq!(error, "the decoding thread panicked, which is a bug: a bug with the text of a prompt");
}

#[test]
fn a_request_whose_logits_are_not_finite_fails_alone() {
    let server = start(options(), &Sizes::default());
    server.pace.fail(Some(Failure::Poisoned(9)));
    server.pace.allow(2);
    let good = server.stream(COMPLETIONS, LONG);
    let bad = server.stream(COMPLETIONS, r#"{"prompt": [9, 9], "stream": true}"#);
    server.pace.open();
    assert!(bad.rest().events().last().unwrap().contains(r#""code":"internal_error""#));
    assert_eq!(good.rest().events().last(), Some(&"[DONE]"));
}

#[test]
fn pages_of_other_origins_need_to_be_allowed() {
    let origins = vec!["https://chat.example".to_owned()];
    for (origins, origin, allowed) in [
        (Vec::new(), "https://chat.example", ""),
        (origins.clone(), "https://chat.example", "https://chat.example"),
        (origins, "https://other.example", ""),
        (vec!["*".to_owned()], "https://other.example", "*"),
    ] {
        let server = start(Options { origins, keys: Keys::parse("key"), ..options() }, &Sizes::default());
        // OpenAI's client for JavaScript has headers of its own.
        let headers = "authorization,content-type,x-stainless-os,x-stainless-retry-count";
        let request = format!(
            "OPTIONS {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: {headers}\r\n\r\n"
        );
        let reply = send(&server.address, &request);
        assert_eq!(reply.header("access-control-allow-origin"), allowed, "{origin}");
        if !allowed.is_empty() {
            assert_eq!(reply.header("access-control-allow-headers"), headers);
        }
    }
    let origins = vec!["https://chat.example/".to_owned()];
    let message = Server::start(Options { origins, ..options() }).unwrap_err().to_string();
    assert!(message.contains("`https://chat.example/` is not an origin"), "{message}");
}

#[test]
fn only_the_names_of_this_machine_are_answered_for() {
    let server = start(Options { hosts: vec!["chat.example".to_owned()], ..options() }, &Sizes::default());
    for (host, status) in
        [("localhost", 200), ("127.0.0.1:8080", 200), ("Chat.example:443", 200), ("evil.example", 403)]
    {
        for path in ["/v1/models", "/", "/health"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let reply = send(&server.address, &head);
            assert_eq!(reply.status, status, "{path} of {host}");
            if status == 403 {
                assert_eq!(reply.code(), "host_not_allowed");
            }
        }
    }
}

#[test]
fn bodies_in_chunks_have_the_same_limit() {
    let server = start(options(), &Sizes::default());
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\n"
    );
    let small = send(&server.address, &format!("{head}{:x}\r\n{SHORT}\r\n0\r\n\r\n", SHORT.len()));
    assert_eq!(small.status, 200);
    let chunk = " ".repeat(40_000);
    let chunk = format!("{:x}\r\n{chunk}\r\n", chunk.len());
    let large = send(&server.address, &format!("{head}{chunk}{chunk}0\r\n\r\n"));
    assert_eq!((large.status, large.code().as_str()), (413, "body_too_large"));
}

/// A connection to which the beginning of a request was sent; the body is `length` bytes long.
fn begun(server: &support::Running, length: usize, body: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket
}

/// What arrives on a connection until it is closed.
fn all(mut socket: TcpStream) -> String {
    let mut text = String::new();
    // The server may reset the connection.
    let _ = socket.read_to_string(&mut text);
    text
}

#[test]
fn a_body_that_stops_arriving_is_given_up() {
    let body_timeout = Duration::from_millis(200);
    let server = start(Options { body_timeout, ..options() }, &Sizes::default());
    let answer = all(begun(&server, 100, r#"{"prompt": "#));
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{answer}");
    assert!(answer.contains("did not arrive within 0.2 s"), "{answer}");
}

#[test]
fn a_truncated_body_is_an_error() {
    let server = start(options(), &Sizes::default());
    let socket = begun(&server, 100, r#"{"prompt": "#);
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = all(socket);
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("incomplete_body"), "{answer}");
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
}

#[test]
fn bodies_take_memory_as_they_arrive_and_are_refused_without_it() {
    // Memory for eight bodies of the largest size.
    let server = start(options(), &Sizes::default());
    let slow: Vec<TcpStream> = (0..16).map(|_| begun(&server, 60_000, "{")).collect();
    server.wait_for_metric("bespoke_connections", 17.0);
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    drop(slow);
    let text = " ".repeat(59_000);
    let large: Vec<TcpStream> = (0..9).map(|_| begun(&server, 60_000, &text)).collect();
    for socket in &large {
        socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    }
    // One of nine must be refused.
    let refused = |mut socket: &TcpStream| {
        let mut answer = [0; 1024];
        let count = socket.read(&mut answer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(
            count == 0 || answer.starts_with("HTTP/1.1 429 ") && answer.contains("retry-after: 1"),
            "{answer}"
        );
        count > 0
    };
    server.wait_for("a body is refused", || large.iter().any(refused));
    drop(large);
    server.wait_for("the memory is free", || server.post(COMPLETIONS, SHORT).status == 200);
}

#[test]
fn connections_that_send_nothing_make_room_for_others() {
    let head_timeout = Duration::from_secs(1);
    let server = start(Options { connections: 2, head_timeout, ..options() }, &Sizes::default());
    server.wait_for_metric("bespoke_connections", 1.0);
    let address = server.address.trim_start_matches("http://").to_owned();
    let mut idle: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(&address).unwrap()).collect();
    idle[1].write_all(b"GET /health HT").unwrap();
    let start = Instant::now();
    // Waits in the system's queue until the others are closed.
    assert_eq!(server.post(COMPLETIONS, SHORT).status, 200);
    assert!(start.elapsed() > Duration::from_millis(100), "the limit of connections has no effect");
    for socket in idle {
        assert_eq!(all(socket), "");
    }
    // A connection with a request may be idle for longer.
    let mut kept = TcpStream::connect(&address).unwrap();
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    kept.write_all(request.as_bytes()).unwrap();
    std::thread::sleep(2 * head_timeout);
    kept.write_all(request.replace("Host", "Connection: close\r\nHost").as_bytes()).unwrap();
    assert_eq!(all(kept).matches("HTTP/1.1 200 OK").count(), 2);
}

#[test]
fn drafts_and_grammars_count_in_the_memory_of_requests() {
    let memory = |drafts| {
        let speculation = Speculation::up_to(drafts);
        Server::start(Options { speculation, ..options() }).unwrap().request_memory(2, 1000)
    };
    let (without, with) = (memory(0), memory(4));
    // Two slots and a queue of four, and the lookup tables of 1000 tokens each.
    assert_eq!(with.tokens - without.tokens, 6 * 1000 * 128);
    assert_eq!((with.grammars, without.grammars), (6 * 10_240_000, 6 * 10_240_000));
}

#[test]
fn answers_have_the_id_of_the_log() {
    let server = start(options(), &Sizes::default());
    let reply = server.post(COMPLETIONS, SHORT);
    assert_eq!(reply.json()["id"], format!("cmpl-{}", reply.header("x-request-id")));
}

#[test]
fn a_conversation_has_the_tokens_that_a_chat_would_have() {
    let server = Server::start(options()).unwrap();
    let (steps, pace) = reciter(&tokenizer(), &Sizes::default());
    let model = bespoke_serve::Model { normalise: |text| text.trim().to_owned(), ..model() };
    let server = serve(server, model, steps, pace);
    let messages = r#""messages": [{"role": "user", "content": "  Hello  "}]"#;
    let tokens = server.post("/tokenize", &format!("{{{messages}}}")).json();
    let chat = server.post("/v1/chat/completions", &format!("{{{messages}, \"max_tokens\": 1}}")).json();
    assert_eq!((&tokens["count"], tokens["count"].as_u64()), (&chat["usage"]["prompt_tokens"], Some(4)));
}

#[test]
fn metrics_count_what_happened() {
    let server = start(options(), &Sizes::default());
    for _ in 0..2 {
        server.post(COMPLETIONS, r#"{"prompt": "The old fox lives in the tower.", "max_tokens": 5}"#);
    }
    server.get("/nothing");
    for (name, value) in [
        ("bespoke_requests_total{path=\"/v1/completions\",status=\"200\"}", 2.0),
        ("bespoke_requests_total{path=\"other\",status=\"404\"}", 1.0),
        ("bespoke_generated_tokens_total", 10.0),
        ("bespoke_finished_total{reason=\"max_tokens\"}", 2.0),
        ("bespoke_first_token_seconds_count", 2.0),
        ("bespoke_sequences{state=\"running\"}", 0.0),
    ] {
        assert_eq!(server.metric(name), value, "{name}");
    }
    assert!(server.get("/metrics").body.ends_with("# EOF\n"));
}
