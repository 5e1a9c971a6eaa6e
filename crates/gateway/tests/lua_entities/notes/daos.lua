local typedefs = require "kong.db.schema.typedefs"

return {
  {
    name = "notes",
    primary_key = { "id" },
    endpoint_key = "title",
    cache_key = { "title" },
    admin_api_name = "notes",
    admin_api_nested_name = "note",
    ttl = true,
    fields = {
      { id = typedefs.uuid },
      { created_at = typedefs.auto_timestamp_s },
      { consumer = { type = "foreign", reference = "consumers", on_delete = "cascade" } },
      { title = { type = "string", required = true, unique = true, match = "^[a-z]+$" } },
      { size = { type = "integer", default = 3, between = { 1, 9 } } },
      { parts = { type = "array", elements = { type = "string" }, default = {} } },
      { origin = { type = "string", immutable = true } },
      { secret = { type = "string", encrypted = true } },
      { tags = typedefs.tags },
    },
    entity_checks = {
      { custom_entity_check = {
        field_sources = { "title", "size" },
        fn = function(entity)
          if entity.title == "tiny" and entity.size > 1 then
            return nil, "a tiny note has the size 1"
          end
          return true
        end,
      } },
    },
  },
  {
    name = "note_marks",
    primary_key = { "id" },
    cache_key = { "note", "number" },
    generate_admin_api = false,
    fields = {
      { id = typedefs.uuid },
      { note = { type = "foreign", reference = "notes", required = true, on_delete = "cascade" } },
      { number = { type = "integer", required = true } },
    },
  },
}
