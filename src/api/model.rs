//! The model of a request, by its parameter `model`.

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER};

use super::parameters::Parameters;
use super::services::Services;
use crate::http::Failure;
use crate::patience::Deadline;
use crate::registry::{Loaded, Unavailable};

/// The code of a model that could not be loaded, and may not be the next time.
pub(super) const MODEL_FAILED: &str = "MODEL_FAILED";

impl Services {
    /// The model that `parameters` ask for; the default if they name none, or one that is not served. Writes the name
    /// under which it is served into them, so that a name left as it was is known to have had no effect. Waits, until
    /// `deadline` at the latest, while the model is loaded.
    ///
    /// # Errors
    /// 503 while the model is loaded, has no room or can't be loaded; 400 if it never fits.
    pub(super) async fn model(
        &self,
        parameters: &mut Parameters,
        deadline: Option<Deadline>,
    ) -> Result<Loaded, Failure> {
        let loaded = self.models.choose(parameters.model.as_deref(), deadline).await?;
        let name = self.models.name_of(parameters.model.as_deref());
        if let (Some(name), Some(asked)) = (name, &mut parameters.model) {
            name.clone_into(asked);
        }
        Ok(loaded)
    }
}

impl From<Unavailable> for Failure {
    fn from(unavailable: Unavailable) -> Self {
        let busy = |code: &'static str, message: String, after: std::time::Duration| {
            let seconds = (after.as_secs() + u64::from(after.subsec_nanos() > 0)).max(1);
            Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
                .header(RETRY_AFTER, HeaderValue::from(seconds))
        };
        let cause = unavailable.to_string();
        let failure = match unavailable {
            Unavailable::Loading { name, retry_after } => {
                let message = format!("The model `{name}` is being loaded. Please try again later.");
                busy("MODEL_LOADING", message, retry_after)
            }
            Unavailable::NoRoom { name, retry_after } => {
                let message = format!(
                    "There is no memory for the model `{name}` beside those in use. Please try again later, or use another \
                     model."
                );
                busy("MODEL_NO_MEMORY", message, retry_after)
            }
            Unavailable::TooLarge { name } => {
                let message =
                    format!("The model `{name}` needs more memory than this server has. Use another model.");
                Self::new(StatusCode::BAD_REQUEST, "MODEL_TOO_LARGE", message)
            }
            Unavailable::Failed { name, retry_after } => {
                let message =
                    format!("The model `{name}` cannot be loaded on this server. Use another model.");
                busy(MODEL_FAILED, message, retry_after)
            }
        };
        failure.because(cause)
    }
}
