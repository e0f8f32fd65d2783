//! What a server says about its model.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::LoadError;
use crate::client::Client;

/// Longest time to wait for a server that answers 503, as one that loads its model does.
const LOADING: Duration = Duration::from_secs(120);

/// Time between two questions to such a server.
const RETRY: Duration = Duration::from_millis(200);

/// Model of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Name in the API.
    pub model: String,
    /// Positions of the context, if the server says them: OpenAI's API has no field for it.
    pub context: Option<u32>,
}

impl Facts {
    /// Asks a server for its models. `model` chooses one of several; else it is the first. Waits while a server loads its
    /// model, at most [`LOADING`].
    pub async fn ask(client: &Client, model: Option<&str>) -> Result<Facts, LoadError> {
        let start = Instant::now();
        let text = loop {
            match client.get("/v1/models").await {
                Err(LoadError::Refused { status: 503, .. }) if start.elapsed() < LOADING => {
                    tokio::time::sleep(RETRY).await;
                }
                answer => break answer?,
            }
        };
        let models: Value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Facts::of(&models, model))
    }

    fn of(models: &Value, model: Option<&str>) -> Facts {
        let list = models["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let chosen = match model {
            Some(name) => list.iter().find(|it| it["id"] == name),
            None => list.first(),
        };
        let context = chosen.and_then(|it| u32::try_from(it["max_model_len"].as_u64()?).ok());
        let name = model.or_else(|| chosen?["id"].as_str()).unwrap_or_default().to_owned();
        Facts { model: name, context }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_context_is_known_if_the_server_says_it() {
        let models = json!({"data": [{"id": "a", "max_model_len": 512}, {"id": "b"}]});
        let of = |model| Facts::of(&models, model);
        assert_eq!(of(None), Facts { model: "a".to_owned(), context: Some(512) });
        assert_eq!(of(Some("b")), Facts { model: "b".to_owned(), context: None });
        // The server refuses a name that it does not have.
        assert_eq!(of(Some("c")), Facts { model: "c".to_owned(), context: None });
        assert_eq!(Facts::of(&Value::Null, None).model, "");
    }
}
