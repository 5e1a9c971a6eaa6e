//! `examples/lua-plugin`: the plugin in Lua does what the one in Rust does, with the same configuration.
use crate::harness::Gateway;
use std::fs;
use std::path::Path;

#[test]
fn the_plugin_in_lua_does_the_same_as_the_one_in_rust() {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lua-plugin"));
    let written = fs::read_to_string(folder.join("kong.yml")).unwrap();
    let path = format!("{}/?.lua", folder.display());
    for configuration in
        [written.clone(), written.replace(", keep_incoming_path: true", ", status_code: 307")]
    {
        let gateway = Gateway::builder(&configuration);
        let gateway = gateway.set("plugins", "bundled,my-redirect").set("lua_package_path", &path).start();
        for query in ["", "?a=b&c"] {
            let [lua, rust] = ["lua", "rust"].map(|name| {
                let response = gateway.get(&format!("/{name}{query}"));
                let location = response.header("location").unwrap().replace(&format!("/{name}"), "/NAME");
                (response.status, location, response.text().to_owned())
            });
            assert_eq!(lua, rust);
        }
    }
}
