//! `serve`: from the command line to the end by a signal.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::Duration;

use super::*;

/// A server that runs.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server of the demo model, and waits until it answers.
fn serve(more: &[&str]) -> Server {
    serve_with_log(more, Stdio::null())
}

/// The same with a log. A log that nobody reads must be short: a full pipe stops the server.
fn serve_with_log(more: &[&str], log: Stdio) -> Server {
    let args = ["serve", "--port", "0", "--device", "emulator", "--parallel", "2", "--ctx", "256"];
    let mut child = command(&[&args, more].concat()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("{line}")).to_owned();
    let server = Server { child, address };
    loop {
        let health = server.send("GET", "/health", "");
        match health.get(..12) {
            Some("HTTP/1.1 200") => return server,
            Some("HTTP/1.1 503") => std::thread::sleep(Duration::from_millis(20)),
            _ => panic!("{health}"),
        }
    }
}

impl Server {
    fn connect(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json"
        );
        stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        stream
    }

    /// Head and body of an answer.
    fn send(&self, method: &str, path: &str, body: &str) -> String {
        let mut text = String::new();
        self.connect(method, path, body).read_to_string(&mut text).unwrap();
        text
    }
}

/// A text whose answer is as long as the context allows.
const STREAM: &str = r#"{"prompt": "The old fox", "max_tokens": 100000, "ignore_eos": true, "stream": true}"#;

#[cfg(unix)]
#[test]
fn a_server_answers_and_finishes_streams_after_a_signal() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    // On a busy machine the stream may take longer than the default grace.
    let mut server = serve(&["--alias", "sums", "--grace", "600"]);
    let chat = r#"{"model": "sums", "messages": [{"role": "user", "content": "17+25"}]}"#;
    let answer = server.send("POST", "/v1/chat/completions", chat);
    assert!(answer.contains(r#""content":" 42""#), "{answer}");
    let mut stream = server.connect("POST", "/v1/completions", STREAM);
    let mut start = [0; 400];
    stream.read_exact(&mut start).unwrap();
    let pid = Pid::from_raw(server.child.id() as i32);
    kill(pid, Signal::SIGTERM).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    // The second signal ends a server whose streams run.
    let mut server = serve_with_log(&[], Stdio::piped());
    let mut stream = server.connect("POST", "/v1/completions", STREAM);
    stream.read_exact(&mut start).unwrap();
    let mut log = server.child.stderr.take().unwrap();
    let pid = Pid::from_raw(server.child.id() as i32);
    kill(pid, Signal::SIGTERM).unwrap();
    // Two signals within 80 ms are one.
    std::thread::sleep(Duration::from_millis(100));
    while TcpStream::connect(&server.address).is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(143));
    let mut text = String::new();
    log.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("ended by a second signal; answers that are lost: 1\n"), "{text}");
}

/// A stopped process stands for a paused container: time passes at once.
#[cfg(unix)]
#[test]
fn a_server_that_was_stopped_ends_requests_whose_time_is_over_and_answers_others() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    let server = serve(&["--timeout", "6"]);
    let mut stream = server.connect("POST", "/v1/completions", STREAM);
    stream.read_exact(&mut [0; 400]).unwrap();
    let pid = Pid::from_raw(server.child.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(7));
    kill(pid, Signal::SIGCONT).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains(r#""code":"timeout""#) && !rest.contains("[DONE]"), "{rest}");
    let chat = r#"{"messages": [{"role": "user", "content": "17+25"}]}"#;
    let answer = server.send("POST", "/v1/chat/completions", chat);
    assert!(answer.contains(r#""content":" 42""#), "{answer}");
}

#[test]
fn what_a_server_cannot_start_with_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.txt");
    std::fs::write(&keys, "# none\n").unwrap();
    let keys = keys.to_str().unwrap();
    let missing = folder.path().join("missing/socket");
    let missing = missing.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, message) in [
        (&["--api-key-file", keys][..], "has no API keys"),
        (&["--port", &port], "help: another program listens there: --port N takes another port"),
        (
            &["--host", "nowhere.invalid"],
            "help: --host takes an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them",
        ),
        // An address for documentation, which no machine has.
        (&["--host", "192.0.2.1"], "help: --host takes an address of this machine"),
        (&["--cors-origin", "https://chat.example/"], "`https://chat.example/` is not an origin"),
        #[cfg(unix)]
        (&["--unix", missing], "help: the folder of --unix PATH does not exist"),
        #[cfg(unix)]
        (&["--unix", keys], "or the path is a file that is no socket"),
        (&["--system", "Be terse."], "--system has no effect on a server"),
        (&["missing.gguf"], "cannot read missing.gguf"),
    ] {
        let text = error(&[&["serve"], args].concat());
        assert!(text.contains(message), "{args:?}: {text}");
    }
}

#[test]
fn a_server_that_would_refuse_every_body_does_not_start() {
    let ran = bespoke(&["serve", "--max-body", "0"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("a body has at least 1 byte"), "{}", ran.stderr);
}

#[test]
fn the_load_generator_measures_a_server_and_checks_mixed_traffic() {
    let server = serve(&[]);
    let args = ["bench-server", &server.address, "-p", "20", "-n", "6", "-o", "json"];
    let results = json(&[&args[..], &["-c", "1,3", "-r", "2"]].concat());
    let levels = results["levels"].as_array().unwrap();
    for (level, clients) in levels.iter().zip([1, 3]) {
        assert_eq!((&level["clients"], &level["failed"]), (&clients.into(), &0.into()), "{level}");
        // Each answer has all its tokens: the server ignores the end of the text.
        assert_eq!(level["answer_tokens"], clients * 2 * 6, "{level}");
        assert!((10.0..30.0).contains(&level["prompt_tokens"].as_f64().unwrap()), "{level}");
        for name in ["first_token_ms", "between_tokens_ms"] {
            let [p50, p99] = ["p50", "p99"].map(|it| level[name][it].as_f64().unwrap());
            assert!(0.0 < p50 && p50 <= p99, "{level}");
        }
    }
    assert_eq!(levels.len(), 2);
    let table = output(&["bench-server", &server.address, "-p", "9", "-n", "8", "-c", "2", "-r", "1"]);
    assert_eq!(table.lines().count(), 3, "{table}");

    let mixed = ["bench-server", &server.address, "--mixed", "--seconds", "3", "-c", "6", "-o", "json"];
    let report = json(&mixed);
    let count = |name: &str| -> u64 {
        report["kinds"].as_array().unwrap().iter().map(|kind| kind[name].as_u64().unwrap()).sum()
    };
    // However slow the server is, each client ends the request that it has begun.
    assert!(0 < count("answered"), "{report}");
    let ended = ["answered", "refused", "left", "slow_readers"].map(count);
    assert!(6 <= ended.iter().sum::<u64>(), "{report}");
    assert_eq!((&report["unexpected"], &report["left"]), (&serde_json::json!([]), &serde_json::json!([])));

    let long = error(&["bench-server", &server.address, "-p", "250", "-n", "9"]);
    assert!(
        long.contains("250 prompt tokens and 9 answer tokens do not fit into the server's context of 256")
    );
}

#[test]
fn the_load_generator_fails_if_the_server_is_gone_or_wrong() {
    // A port at which nobody listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let message = error(&["bench-server", &address]);
    assert!(
        message.contains(&address) && message.contains("help: `bespoke serve` starts a server"),
        "{message}"
    );
    assert!(error(&["bench-server", "https://localhost"]).contains("does not begin with http://"));

    // A server with the right models whose other answers are all the same.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            let models = request[..count].starts_with(b"GET /v1/models");
            let body = match models {
                true => r#"{"data": [{"id": "m", "max_model_len": 64}]}"#,
                false => r#"{"usage": {"prompt_tokens": 5}}"#,
            };
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    let ran = bespoke(&["bench-server", &address, "-c", "2", "-r", "1"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.contains("the stream ended without [DONE]"), "{}", ran.stdout);
    assert!(ran.stderr.contains("error: 2 requests failed"), "{}", ran.stderr);
    let mixed = error(&["bench-server", &address, "--mixed", "--seconds", "1"]);
    assert!(mixed.contains("mixed traffic needs a `bespoke serve`"), "{mixed}");
}
