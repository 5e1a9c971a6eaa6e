use crate::PLUGINS;
use serde_json::{Value as Json, json};
use weir_plugin::testing::Gateway;

fn url(config: Json) -> String {
    let config = <super::Config as weir_plugin::Record>::from_value(&config).unwrap();
    config.url("cn-north-1").unwrap().to_string()
}

#[test]
fn functions_have_urls() {
    assert_eq!(
        url(json!({ "function_name": "arn:aws:lambda:eu-west-1:1:function:a b", "qualifier": "$LATEST" })),
        "https://lambda.cn-north-1.amazonaws.com.cn:443/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-west-1%3A1%3A\
         function%3Aa%20b/invocations?Qualifier=%24LATEST"
    );
    let local = json!({ "function_name": "f", "host": "::1", "port": 4566, "disable_https": true });
    assert_eq!(url(local), "http://[::1]:4566/2015-03-31/functions/f/invocations");
}

fn payload(config: Json, request: &str) -> Json {
    let mut config = config;
    config["function_name"] = json!("f");
    let config = <super::Config as weir_plugin::Record>::from_value(&config).unwrap();
    super::payload::payload(&config, &Gateway::new(PLUGINS).exchange(request))
}

#[test]
fn without_anything_forwarded_the_arguments_are_sent() {
    let form = "POST /?a=1&b=2\nContent-Type: application/x-www-form-urlencoded\n\nb=3&c=4";
    assert_eq!(payload(json!({}), form), json!({ "a": "1", "b": "3", "c": "4" }));
    let list = "Content-Type: application/json\n\n[5]";
    assert_eq!(payload(json!({}), &format!("POST /\n{list}")), json!([5]));
    assert_eq!(payload(json!({}), &format!("POST /?a=1\n{list}")), json!({ "a": "1", "1": 5 }));
    assert_eq!(payload(json!({}), "GET /"), json!({}));
}

#[test]
fn parts_are_forwarded() {
    let request = "PUT /p?a=1\nContent-Type: image/png\nX-A: b\n\nhi";
    let forwarded = payload(json!({ "forward_request_method": true, "forward_request_uri": true }), request);
    assert_eq!(
        forwarded,
        json!({ "request_method": "PUT", "request_uri": "/p?a=1", "request_uri_args": { "a": "1" } })
    );
    let headers = payload(json!({ "forward_request_headers": true }), request);
    assert_eq!(headers["request_headers"]["x-a"], "b");
    let body = |config, content_type: &str| {
        payload(config, &format!("POST /\nContent-Type: {content_type}\n\n{{\"a\":[]}}"))
    };
    let (on, plain) = (
        json!({ "forward_request_body": true }),
        json!({ "forward_request_body": true, "base64_encode_body": false }),
    );
    assert_eq!(
        body(on.clone(), "image/png"),
        json!({ "request_body": "eyJhIjpbXX0=", "request_body_base64": true, "request_body_args": {} })
    );
    let text = json!({ "request_body": "{\"a\":[]}", "request_body_args": {} });
    assert_eq!((body(on.clone(), "text/plain"), body(plain, "image/png")), (text.clone(), text));
    let json = json!({ "request_body": "{\"a\":[]}", "request_body_args": { "a": [] } });
    assert_eq!(body(on.clone(), "application/json"), json);
    assert_eq!(
        payload(on, "GET /"),
        json!({ "request_body": "", "request_body_base64": true, "request_body_args": {} })
    );
}

#[test]
fn the_event_is_that_of_api_gateway() {
    let config = json!({ "awsgateway_compatible": true });
    let event = payload(config, "POST /a%20b?q=1&q=2&f\nUser-Agent: x\nX-A: 1\nX-A: 2\n\nhi");
    let expected = json!({
        "version": "1.0", "resource": "/", "httpMethod": "POST", "body": "aGk=", "isBase64Encoded": true,
        "queryStringParameters": { "q": "1", "f": true },
        "multiValueQueryStringParameters": { "q": ["1", "2"], "f": [true] },
        "pathParameters": {},
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&event[name], value, "{name}");
    }
    assert_eq!(
        (&event["headers"]["x-a"], &event["multiValueHeaders"]["x-a"]),
        (&json!("1"), &json!(["1", "2"]))
    );
    let context = &event["requestContext"];
    assert_eq!(
        (&context["domainName"], &context["domainPrefix"]),
        (&json!("gateway.test"), &json!("gateway"))
    );
    assert_eq!((&context["protocol"], &context["identity"]["userAgent"]), (&json!("HTTP/1.1"), &json!("x")));
    assert_eq!((&context["path"], &context["resourcePath"]), (&event["path"], &event["path"]));
    let time = context["requestTime"].as_str().unwrap();
    assert!(time.ends_with(" +0000") && time.as_bytes()[2] == b'/' && time.len() == 26, "{time}");
    let plain = payload(json!({ "awsgateway_compatible": true, "base64_encode_body": false }), "GET /");
    assert_eq!((plain.get("body"), &plain["isBase64Encoded"]), (None, &json!(false)));
}
