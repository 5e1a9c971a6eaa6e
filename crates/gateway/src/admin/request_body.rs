//! Bodies of requests: JSON, and the two kinds of forms.
use super::form;
use super::response::ApiError;
use crate::json_body;
use axum::body::{Body as HttpBody, Bytes};
use multer::Multipart;
use weir_model::schema::{Json, JsonMap};

/// The longest body that is read.
pub(super) const MAX_BODY_LEN: usize = 10 << 20;

/// The content of a request's body.
#[derive(Default)]
pub(super) struct Body {
    /// The members of the one object that it is.
    pub(super) members: JsonMap,
    /// Whether every value is text, to be read as its field's type.
    pub(super) untyped: bool,
}

impl Body {
    /// Reads a body of a type.
    pub(super) async fn read(content_type: Option<&str>, bytes: Bytes) -> Result<Body, ApiError> {
        let Some(content_type) = content_type else {
            return if bytes.is_empty() { Ok(Body::default()) } else { Err(ApiError::MediaType) };
        };
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match essence.as_str() {
            "application/json" => json(&bytes),
            "application/x-www-form-urlencoded" if bytes.trim_ascii_start().starts_with(b"{") => {
                let message =
                    "Cannot parse form body: this looks like JSON: send Content-Type: application/json";
                Err(ApiError::Malformed(message.to_owned()))
            }
            "application/x-www-form-urlencoded" => {
                let arguments = form_urlencoded::parse(&bytes);
                of_form(arguments.map(|(name, value)| (name.into_owned(), value.into_owned().into())))
            }
            "multipart/form-data" if bytes.is_empty() => of_form(std::iter::empty()),
            "multipart/form-data" => of_form(parts(content_type, bytes).await?.into_iter()),
            _ => Err(ApiError::MediaType),
        }
    }
}

fn json(bytes: &[u8]) -> Result<Body, ApiError> {
    match json_body::read(bytes) {
        Ok(Json::Object(members)) => Ok(Body { members, untyped: false }),
        Ok(_) => Err(ApiError::Malformed("Cannot parse JSON body: expected an object".to_owned())),
        Err(_) => Err(ApiError::Malformed("Cannot parse JSON body".to_owned())),
    }
}

fn of_form(arguments: impl Iterator<Item = (String, Json)>) -> Result<Body, ApiError> {
    let members = form::tree(arguments).map_err(ApiError::Malformed)?;
    Ok(Body { members, untyped: true })
}

async fn parts(content_type: &str, bytes: Bytes) -> Result<Vec<(String, Json)>, ApiError> {
    let malformed =
        |error: multer::Error| ApiError::Malformed(format!("Cannot parse multipart body: {error}"));
    let boundary = multer::parse_boundary(content_type).map_err(malformed)?;
    let mut multipart = Multipart::new(HttpBody::from(bytes).into_data_stream(), boundary);
    let mut arguments = Vec::new();
    while let Some(field) = multipart.next_field().await.map_err(malformed)? {
        let Some(name) = field.name().map(str::to_owned) else { continue };
        let is_json = field.content_type().is_some_and(|kind| kind.essence_str() == "application/json");
        let value = field.bytes().await.map_err(malformed)?;
        arguments.push((name, part_value(&value, is_json)?));
    }
    Ok(arguments)
}

fn part_value(bytes: &[u8], is_json: bool) -> Result<Json, ApiError> {
    if is_json {
        let cannot = |_| ApiError::Malformed("Cannot parse the JSON of a part".to_owned());
        return serde_json::from_slice(bytes).map_err(cannot);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(_) => Err(ApiError::Malformed("a part is not UTF-8 text; send it in that encoding".to_owned())),
    }
}
