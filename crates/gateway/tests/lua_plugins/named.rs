//! Plugins in Lua by their own names, where the node shows what plugins do and cost.
use super::Plugins;
use crate::harness::{Gateway, Upstream, one_route, weir};
use serde_json::{Value, json};

const ID: &str = "11111111-0000-4000-8000-000000000001";
const HANDLER: &str = "return { PRIORITY = 10, VERSION = '1.0',\n\
                       access = function() kong.ctx.plugin.seen = true end,\n\
                       header_filter = function() kong.response.set_header('X-Seen', kong.ctx.plugin.seen) end,\n\
                       log = function() end }";

/// The plugin `mine` for all requests of one service.
fn configuration(upstream: &Upstream) -> String {
    format!("{}plugins:\n- {{name: mine, id: {ID}}}\n", one_route(upstream.address))
}

fn start(plugins: &Plugins) -> (Gateway, Upstream) {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let builder = plugins.builder("mine", &configuration(&upstream));
    (builder.set("cost_sampling", "1").start(), upstream)
}

#[test]
fn costs_have_it() {
    let (gateway, _upstream) = start(&Plugins::mine(HANDLER));
    for _ in 0..3 {
        assert_eq!(gateway.get("/").header("x-seen"), Some("true"));
    }
    let costs = gateway.admin("/plugins/costs?plugin=mine").json();
    let [row] = costs["data"].as_array().unwrap().as_slice() else { panic!("{costs}") };
    assert_eq!((&row["name"], &row["route"]["name"]), (&json!("mine"), &json!("r")), "{row}");
    assert_eq!(row["calls"], 3, "{row}");
    for phase in ["access", "response", "log"] {
        assert_eq!(row["phases"][phase]["sampled"], 3, "{phase}: {row}");
    }
    assert!(row["us_mean"].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn the_debugging_of_a_request_has_it() {
    let (gateway, _upstream) = start(&Plugins::mine(HANDLER));
    let response = gateway.get_with("/", "X-Kong-Request-Debug: *\r\n");
    let output: Value =
        serde_json::from_str(response.header("X-Kong-Request-Debug-Output").unwrap()).unwrap();
    for phase in ["access", "header_filter"] {
        let plugin = &output["child"][phase]["child"]["plugins"]["child"]["mine"]["child"][ID];
        assert!(plugin["total_time"].is_f64(), "{phase}: {output}");
    }
}

#[test]
fn an_explanation_has_it() {
    let plugins = Plugins::mine(HANDLER);
    let (gateway, upstream) = start(&plugins);
    let explained = gateway.ask_admin("POST", "/explain", &json!({ "host": "localhost" }).to_string()).json();
    let [step] = explained["plugins"].as_array().unwrap().as_slice() else { panic!("{explained}") };
    assert_eq!((&step["name"], &step["id"], &step["runs"]), (&json!("mine"), &json!(ID), &json!(true)));

    let file = plugins.folder().join("kong.yml");
    std::fs::write(&file, configuration(&upstream)).unwrap();
    let path = format!("lua_package_path={}/?.lua", plugins.folder().display());
    let mut command = weir();
    command.arg("explain").arg(&file).args(["GET", "http://localhost/", "--set", "plugins=bundled,mine"]);
    let output = command.args(["--set", &path]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("mine (global)"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}
