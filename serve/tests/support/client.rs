//! A blocking HTTP client that sends exactly what it is given.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::Value;

/// Time after which a test gives up.
const TIME: Duration = Duration::from_secs(300);

trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next().unwrap_or("")
    }

    /// The `data` fields of the body's server-sent events.
    pub fn events(&self) -> Vec<&str> {
        self.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect()
    }

    /// The code of an error.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// A POST with a JSON body.
pub fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn connect(address: &str) -> Box<dyn Socket> {
    if let Some(path) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIME)).unwrap();
        return Box::new(stream);
    }
    let stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(TIME)).unwrap();
    Box::new(stream)
}

/// Sends a request that asks to close the connection; returns the answer.
pub fn send(address: &str, request: &str) -> Reply {
    Stream::open(address, request).rest()
}

/// An answer whose head has arrived. Dropping it closes the connection.
pub struct Stream {
    pub status: u16,
    head: String,
    body: BufReader<Box<dyn Read>>,
}

impl Stream {
    pub fn open(address: &str, request: &str) -> Stream {
        let mut socket = connect(address);
        // The server may answer and close before it has read all.
        let _ = socket.write_all(request.as_bytes());
        let mut reader = BufReader::new(socket);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0, "no answer: {head}");
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
        let body: Box<dyn Read> = match head.to_lowercase().contains("transfer-encoding: chunked") {
            true => Box::new(Chunks { reader, left: 0 }),
            false => Box::new(reader),
        };
        Stream { status, head, body: BufReader::new(body) }
    }

    /// The next line of the body that is not empty; none at the end.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        while line.trim_end().is_empty() {
            line.clear();
            if self.body.read_line(&mut line).unwrap() == 0 {
                return None;
            }
        }
        Some(line.trim_end().to_owned())
    }

    /// The rest of the answer.
    pub fn rest(mut self) -> Reply {
        let mut bytes = Vec::new();
        // A server that ends may reset the connection.
        let _ = self.body.read_to_end(&mut bytes);
        Reply { status: self.status, head: self.head, body: String::from_utf8_lossy(&bytes).into_owned() }
    }
}

/// Contents of chunks.
struct Chunks<R> {
    reader: BufReader<R>,
    /// Number of bytes that are left of a chunk.
    left: usize,
}

impl<R: Read> Read for Chunks<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut line = String::new();
        while self.left == 0 {
            line.clear();
            // The line end behind a chunk comes before the size of the next one.
            if self.reader.read_line(&mut line)? == 0 || line == "0\r\n" {
                return Ok(0);
            }
            self.left = usize::from_str_radix(line.trim_end(), 16).unwrap_or(0);
        }
        let most = self.left.min(buffer.len());
        let count = self.reader.read(&mut buffer[..most])?;
        self.left -= count;
        Ok(count)
    }
}
