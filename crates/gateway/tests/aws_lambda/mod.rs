//! aws-lambda with a stand-in for AWS that verifies every signature: where credentials come from, and what fails.
mod server;

use crate::harness::{Builder, Gateway, Identity, NginxOverTls, Upstream, eventually};
use serde_json::json;
use server::{Aws, CONTAINER_TOKEN, WEB_IDENTITY, error, result};
use std::io::Write;
use std::net::TcpStream;
use std::thread;

const KEY: &str = "aws_key: AKIDOWN, aws_secret: s3cret/key";

/// A gateway to be, with the plugin on a route without a service. Nothing of this machine's own credentials counts.
fn builder(fields: &str) -> Builder {
    let document = format!(
        "_format_version: \"3.0\"\nroutes:\n- name: r\n  paths: [/f]\n  plugins:\n  - name: aws-lambda\n    config: {{{fields}}}\n"
    );
    let names = ["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ROLE_ARN"];
    let builder = names.iter().fold(Gateway::builder(&document), |builder, name| builder.env(name, ""));
    builder
        .env("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials")
        .env("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
        .env("AWS_EC2_METADATA_DISABLED", "true")
}

fn file(content: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

#[test]
fn a_function_is_invoked_with_a_key() {
    let aws = Aws::start();
    let fields =
        format!("{}, {KEY}, qualifier: $LATEST, forward_request_uri: true, log_type: None", aws.fields());
    let gateway = builder(&fields).start();
    let response = gateway.get("/f?a=1");
    assert_eq!((response.status, response.json()), (200, json!({ "hello": "world" })));
    assert_eq!(response.header("x-amz-executed-version"), Some("$LATEST"));
    assert_eq!((response.header("via"), response.header("server")), (Some("1.1 weir"), None));
    assert!(response.header("x-kong-response-latency").is_some());
    let state = aws.state.lock().unwrap();
    let [invoked] = &state.invoked[..] else { panic!("{:?}", state.refused) };
    assert_eq!(invoked.by, "the key");
    assert_eq!(invoked.target, "/2015-03-31/functions/hello/invocations?Qualifier=%24LATEST");
    assert_eq!(invoked.payload, json!({ "request_uri": "/f?a=1", "request_uri_args": { "a": "1" } }));
    let has = |name: &str, value: &str| {
        invoked.headers.iter().any(|(n, v)| n.eq_ignore_ascii_case(name) && v == value)
    };
    assert!(has("x-amz-invocation-type", "RequestResponse") && has("x-amz-log-type", "None"));
}

#[test]
fn credentials_come_from_the_environment_and_from_a_file() {
    let aws = Aws::start();
    let gateway =
        builder(&aws.fields()).env("AWS_ACCESS_KEY_ID", "AKIDOWN").env("AWS_SECRET_ACCESS_KEY", "s3cret/key");
    assert_eq!(gateway.start().get("/f").status, 200);
    let shared = file("[work]\naws_access_key_id = AKIDOWN\naws_secret_access_key = s3cret/key\n");
    let path = shared.path().to_str().unwrap();
    let gateway =
        builder(&aws.fields()).env("AWS_SHARED_CREDENTIALS_FILE", path).env("AWS_PROFILE", "work").start();
    assert_eq!(gateway.get("/f").status, 200);
    assert_eq!(aws.invoked_by(), ["the key", "the key"]);
    let gateway = builder(&aws.fields()).start();
    let response = gateway.get("/f");
    assert_eq!((response.status, &response.json()["message"]), (500, &json!("An unexpected error occurred")));
    assert!(gateway.log().contains("there are no AWS credentials: set config.aws_key"), "{}", gateway.log());
}

#[test]
fn many_requests_get_a_containers_credentials_once() {
    let aws = Aws::start();
    let token = file(&format!("{CONTAINER_TOKEN}\n"));
    let gateway = builder(&aws.fields())
        .set("workers", "2")
        .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("http://{}/container", aws.address()))
        .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().unwrap())
        .start();
    thread::scope(|scope| {
        let asked: Vec<_> = (0..16).map(|_| scope.spawn(|| gateway.get("/f").status)).collect();
        assert!(asked.into_iter().all(|status| status.join().unwrap() == 200), "{}", gateway.log());
    });
    assert_eq!(aws.state.lock().unwrap().issued, 1);
    assert!(aws.invoked_by().iter().all(|by| by == "the container, 1"));
}

#[test]
fn credentials_of_an_instance_are_got_again_before_they_expire() {
    let aws = Aws::start();
    aws.set(|state| (state.imds_v2, state.lifetime) = (true, 2));
    let with_instance = |fields: &str| {
        let builder =
            builder(&format!("{}, {fields}", aws.fields())).env("AWS_EC2_METADATA_DISABLED", "false");
        builder.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", &format!("http://{}/", aws.address())).start()
    };
    let first = with_instance("aws_imds_protocol_version: v1");
    assert_eq!(first.get("/f").status, 500);
    assert!(first.log().contains("set config.aws_imds_protocol_version to v2"), "{}", first.log());
    let second = with_instance("aws_imds_protocol_version: v2");
    eventually("other credentials are used", || {
        assert_eq!(second.get("/f").status, 200, "{}", second.log());
        aws.invoked_by().iter().any(|by| by != "the instance, 1")
    });
    assert!(aws.invoked_by().starts_with(&["the instance, 1".to_owned()]));
}

#[test]
fn a_web_identity_assumes_a_role_and_then_another() {
    let aws = Aws::start();
    let token = file(WEB_IDENTITY);
    let with_identity = |fields: &str| {
        builder(&format!("{}{fields}", aws.fields()))
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", token.path().to_str().unwrap())
            .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod")
            .start()
    };
    assert_eq!(with_identity("").get("/f").status, 200);
    let gateway =
        with_identity(", aws_assume_role_arn: 'arn:aws:iam::2:role/a b', aws_role_session_name: edge");
    for _ in 0..3 {
        assert_eq!(gateway.get("/f").status, 200, "{}", gateway.log());
    }
    let pod = "arn:aws:iam::1:role/pod as weir for a web identity";
    let other = format!("arn:aws:iam::2:role/a b as edge for {pod}, 2, 3");
    assert_eq!(aws.invoked_by(), [format!("{pod}, 1"), other.clone(), other.clone(), other]);
}

#[test]
fn a_role_that_is_refused_is_not_asked_for_by_every_request() {
    let aws = Aws::start();
    let fields =
        format!("{}, aws_key: AKIDOTHER, aws_secret: hunter2, aws_assume_role_arn: 'arn:r'", aws.fields());
    let gateway = builder(&fields).start();
    for _ in 0..20 {
        assert_eq!(gateway.get("/f").status, 500);
    }
    assert!(aws.state.lock().unwrap().refused.len() < 20);
    let log = gateway.log();
    assert!(log.contains("AWS STS answered 403: not you") && !log.contains("hunter2"), "{log}");
}

#[test]
fn what_lambda_fails_with_is_an_error() {
    let aws = Aws::start();
    let gateway = builder(&format!("{}, {KEY}, timeout: 400", aws.fields())).start();
    let failing = [
        (error(429, "Rate Exceeded."), "Lambda answered 429: Rate Exceeded."),
        (error(404, "Function not found"), "Lambda answered 404: Function not found"),
        ("close".to_owned(), "Lambda did not answer"),
        ("half".to_owned(), "Lambda did not answer"),
        ("hang".to_owned(), "Lambda did not answer: the server took too long"),
        ("HTTP/2 nonsense\r\n\r\n".to_owned(), "Lambda did not answer"),
    ];
    for (answer, logged) in failing {
        aws.set(|state| state.answer = answer.clone());
        let response = gateway.get("/f");
        assert_eq!(
            (response.status, &response.json()["message"]),
            (500, &json!("An unexpected error occurred"))
        );
        assert!(gateway.log().contains(logged), "{answer}: {}", gateway.log());
    }
    aws.set(|state| state.answer = result("[]"));
    assert_eq!(gateway.get("/f").text(), "{}");
}

#[test]
fn other_keys_than_the_functions_are_refused() {
    let aws = Aws::start();
    let gateway = builder(&format!("{}, aws_key: AKIDOWN, aws_secret: hunter2", aws.fields())).start();
    assert_eq!(gateway.get("/f").status, 500);
    assert!(aws.state.lock().unwrap().refused[0].contains("the signature is not that of"));
    assert!(!gateway.log().contains("hunter2"));
}

/// A proxy that connects all clients to one address, and keeps the first line of each request.
fn proxy(to: std::net::SocketAddr) -> (Upstream, std::sync::mpsc::Receiver<String>) {
    let (asked, all) = std::sync::mpsc::channel();
    let proxy = Upstream::start(move |mut peer, _| {
        let Some(head) = peer.head() else { return };
        asked.send(head.start).unwrap();
        peer.send("HTTP/1.1 200 Connected\r\n\r\n");
        let (mut client, mut server) = (peer.into_socket(), TcpStream::connect(to).unwrap());
        let (mut to_client, mut from_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
        let _ = std::io::copy(&mut client, &mut server);
    });
    (proxy, all)
}

#[test]
fn lambda_is_asked_over_tls_through_a_proxy_and_verified() {
    let name = "lambda.eu-west-1.amazonaws.com";
    let identity = Identity::new(name);
    let nginx = NginxOverTls::start(&identity, &[], "", "$ssl_server_name $http_host $request_uri");
    let (proxy, asked) = proxy(nginx.address);
    let fields =
        format!("function_name: hello, aws_region: eu-west-1, {KEY}, proxy_url: 'http://{}'", proxy.address);
    let trusted = identity.cert();
    let gateway = builder(&fields).set("lua_ssl_trusted_certificate", trusted.to_str().unwrap()).start();
    let response = gateway.get("/f");
    assert_eq!(
        response.text(),
        format!("{name} {name} /2015-03-31/functions/hello/invocations"),
        "{}",
        gateway.log()
    );
    assert_eq!(asked.recv().unwrap(), format!("CONNECT {name}:443 HTTP/1.1"));
    let gateway = builder(&fields).start();
    assert_eq!(gateway.get("/f").status, 500);
    assert!(gateway.log().contains("or set config.ssl_verify: false"), "{}", gateway.log());
    let gateway = builder(&format!("{fields}, ssl_verify: false")).start();
    assert_eq!(gateway.get("/f").status, 200);
}
