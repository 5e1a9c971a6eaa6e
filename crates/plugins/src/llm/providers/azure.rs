//! Azure OpenAI: OpenAI's API at the URL of a deployment.

use super::{Call, Dialect, Event, Json, Output, Prompts, Reply, Route, in_url, openai};

/// Azure OpenAI.
pub(super) struct Azure;

impl Dialect for Azure {
    fn default_url(&self, call: &Call) -> Result<String, String> {
        let options = &call.options;
        let named = |option: &'_ Option<String>, what| match option.as_deref() {
            Some(name) if name.contains(['/', ':', '@']) => {
                Err(format!("the {what} may have letters, digits, - _ and . alone"))
            }
            name => in_url(name.unwrap_or_default(), what).map(str::to_owned),
        };
        let instance = named(&options.azure_instance, "Azure instance")?;
        let deployment = named(&options.azure_deployment_id, "Azure deployment")?;
        let base = format!("https://{instance}.openai.azure.com:443/openai/deployments/{deployment}");
        let path = match (&options.upstream_path, call.route) {
            (Some(path), _) => path,
            (None, Route::Completions) => "/completions",
            (None, _) => "/chat/completions",
        };
        Ok(format!("{base}{path}"))
    }

    fn url(&self, call: &Call) -> Result<String, String> {
        let url = call.options.upstream_url.clone().map_or_else(|| self.default_url(call), Ok)?;
        let separator = if url.contains('?') { '&' } else { '?' };
        Ok(format!("{url}{separator}api-version={}", call.options.azure_api_version))
    }

    fn request(&self, prompts: Prompts, call: &Call) -> Result<Json, String> {
        Ok(openai::request(prompts, call))
    }

    fn response(&self, body: &Json, call: &Call) -> Result<Option<Reply>, String> {
        openai::response(body, call)
    }

    fn event(&self, event: &Event, call: &Call, out: &mut Output) -> Result<(), String> {
        openai::same(event, call, out)
    }
}
