//! The server's metrics, from the text format of Prometheus.

use std::collections::BTreeMap;

use crate::LoadError;
use crate::client::Client;

/// Values by name and labels, as `/metrics` writes them: `bespoke_pages{state="used"}`.
#[derive(Clone, Debug, Default)]
pub struct ServerMetrics(BTreeMap<String, f64>);

impl ServerMetrics {
    /// Parses a text. Lines that are not values are left out.
    pub fn parse(text: &str) -> ServerMetrics {
        let value = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        ServerMetrics(text.lines().filter(|line| !line.starts_with('#')).filter_map(value).collect())
    }

    /// Reads the metrics of a server.
    pub async fn read(client: &Client) -> Result<ServerMetrics, LoadError> {
        Ok(ServerMetrics::parse(&client.get("/metrics").await?))
    }

    /// A value.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// A value that `bespoke serve` has.
    pub fn require(&self, name: &'static str) -> Result<f64, LoadError> {
        self.get(name).ok_or(LoadError::Metrics(name))
    }

    /// Sequences that run or wait.
    pub fn sequences(&self) -> Result<f64, LoadError> {
        Ok(self.require(r#"bespoke_sequences{state="running"}"#)?
            + self.require(r#"bespoke_sequences{state="waiting"}"#)?)
    }

    /// Pages that sequences hold.
    pub fn used_pages(&self) -> Result<f64, LoadError> {
        self.require(r#"bespoke_pages{state="used"}"#)
    }

    /// All pages of the KV cache.
    pub fn pages(&self) -> Result<f64, LoadError> {
        let state = |name| self.require(name);
        Ok(state(r#"bespoke_pages{state="free"}"#)?
            + state(r#"bespoke_pages{state="cached"}"#)?
            + self.used_pages()?)
    }

    /// Open connections, of which one asked for the metrics.
    pub fn connections(&self) -> Result<f64, LoadError> {
        self.require("bespoke_connections")
    }

    /// Bytes of the server's memory that are resident; none where the server does not know them.
    pub fn resident(&self) -> Option<f64> {
        self.get("process_resident_memory_bytes")
    }

    /// Failures of the engine.
    pub fn engine_failures(&self) -> Result<f64, LoadError> {
        self.require("bespoke_engine_failures_total")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name_and_labels() {
        let text = "# HELP bespoke_pages Pages.\n# TYPE bespoke_pages gauge\nbespoke_pages{state=\"free\"} 5\n\
                    bespoke_pages{state=\"cached\"} 2\nbespoke_pages{state=\"used\"} 1\n\
                    process_resident_memory_bytes 1.5e8\n# EOF\n";
        let metrics = ServerMetrics::parse(text);
        assert_eq!((metrics.pages().unwrap(), metrics.used_pages().unwrap()), (8.0, 1.0));
        assert_eq!(metrics.resident(), Some(1.5e8));
        assert!(metrics.sequences().unwrap_err().to_string().contains("bespoke_sequences"));
    }
}
