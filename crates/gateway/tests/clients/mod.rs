//! Plugins as the client libraries of applications use them: libraries of PyPI, which `make test` installs from the versions that
//! `requirements.txt` names. Each test runs a program in Python, which configures a node by its Admin API, plays the servers behind
//! it, asserts what the library makes of the responses, and prints what it has seen.

use crate::harness::{Builder, Gateway, Identity};
use serde_json::{Value as Json, json};
use std::process::{Command, Stdio};

/// Runs a program of this folder against a node, and returns what it prints.
#[track_caller]
fn run(program: &str, node: Builder) -> Json {
    let identity = Identity::for_strict_clients("localhost");
    let (cert, key) = (identity.cert().display().to_string(), identity.key().display().to_string());
    let node = node.set("ssl_cert", &cert).set("ssl_cert_key", &key).start();
    let argument = json!({
        "proxy": format!("http://{}", node.proxy()),
        "proxy_ssl": format!("https://{}", node.proxy_ssl()),
        "admin": format!("http://{}", node.admin_addresses()[0]),
        "trusted": cert,
    });
    let python = std::env::var("CLIENTS").unwrap_or_else(|_| "python3".into());
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
    let mut command = Command::new(python);
    // Neither proxies nor credentials of this machine count.
    command.env_clear().env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONUTF8", "1").current_dir(folder);
    let output = command.arg(program).arg(argument.to_string()).stdin(Stdio::null()).output();
    let output = output.expect("Python runs: `make test` installs libraries and names its Python in CLIENTS");
    let error = String::from_utf8_lossy(&output.stderr);
    let hint = "`make test-tools` installs the libraries; CLIENTS names the Python that has them";
    assert!(output.status.success(), "{program}: {error}\n{hint}\n{}", node.log());
    serde_json::from_slice(&output.stdout).expect("the program prints JSON")
}

#[test]
fn openai_chats_with_providers_of_every_form() {
    let providers = run("openai_chats.py", Gateway::empty());
    assert_eq!(providers, json!(["openai", "mistral", "anthropic", "gemini", "cohere", "llama2"]));
}

#[test]
fn openai_uses_tools_of_anthropic_gemini_and_ollama() {
    let reasons = run("openai_tools.py", Gateway::empty());
    assert!(reasons.as_array().is_some_and(|reasons| reasons.contains(&json!("refusal"))), "{reasons}");
}

#[test]
fn openai_has_prompts_completed() {
    let with_usage = run("openai_completions.py", Gateway::empty());
    assert_eq!(with_usage, json!(["openai", "cohere", "llama2"]));
}

#[test]
fn openai_raises_its_own_exceptions_and_retries() {
    assert_eq!(run("openai_errors.py", Gateway::empty()), "done");
}

#[test]
fn anthropic_is_passed_on_as_it_is() {
    assert_eq!(run("anthropic_messages.py", Gateway::empty()), "done");
}

#[test]
fn google_genai_is_passed_on_as_it_is() {
    assert_eq!(run("gemini_contents.py", Gateway::empty()), "done");
}

#[test]
fn cohere_is_passed_on_as_it_is() {
    assert_eq!(run("cohere_chats.py", Gateway::empty()), "done");
}

#[test]
fn mistralai_chats_with_its_own_models_and_others() {
    assert_eq!(run("mistral_chats.py", Gateway::empty()), "done");
}

#[test]
fn botocore_makes_the_same_signatures() {
    let node = Gateway::empty()
        .env("AWS_ACCESS_KEY_ID", "ASIAENVIRONMENT")
        .env("AWS_SECRET_ACCESS_KEY", "s3cret/+of=environment")
        .env("AWS_SESSION_TOKEN", "token/+of==environment");
    assert_eq!(run("aws_signatures.py", node), json!({ "lambda": 7, "bedrock": 4, "gateway": 18 }));
}

#[test]
fn requests_oauthlib_gets_tokens_by_every_grant() {
    let let_in = run("oauth2_grants.py", Gateway::empty());
    assert_eq!(let_in, 8);
}

#[test]
fn standardwebhooks_signs_what_is_accepted() {
    assert_eq!(run("signed_webhooks.py", Gateway::empty()), json!({ "accepted": 5, "refused": 11 }));
}

#[test]
fn pyjwt_makes_tokens_by_every_algorithm() {
    let algorithms = run("json_web_tokens.py", Gateway::empty());
    assert_eq!(algorithms.as_array().map(Vec::len), Some(13), "{algorithms}");
}
