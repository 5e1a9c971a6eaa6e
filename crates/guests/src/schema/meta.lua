-- Checks a schema itself, as Kong does before it takes one. Returns what is wrong, and what has no effect: lists of a path, a
-- message, and the name that it is about.
local Schema, near, pattern_problem = ...
local null = ngx.null

-- Fields may be so deep within others: a table may contain itself.
local MAX_DEPTH = 64

local ANY, FLAG, WHOLE, FUNCTION = { type = "any" }, { type = "boolean" }, { type = "integer" }, { type = "function" }
local TEXT = { type = "string", len_min = 0 }
local function list_of(elements) return { type = "array", elements = elements } end
local function record_of(fields) return { type = "record", fields = fields } end
local TEXTS = list_of(TEXT)
local PATTERNS = list_of(record_of({ { pattern = { type = "string", required = true } }, { err = TEXT } }))

local function set_of(names)
  local set = {}
  for name in names:gmatch("%S+") do set[name] = true end
  return set
end

local TYPES = set_of("string number integer boolean array set map record foreign function json any")
local TYPES_OF_SHORTHANDS = set_of("string number integer boolean array set map json any")

-- Attributes that say what values are allowed.
local RULES = {
  between = { type = "array", elements = { type = "number" }, len_eq = 2 },
  eq = ANY, ne = ANY, gt = { type = "number" }, contains = ANY,
  len_eq = WHOLE, len_min = WHOLE, len_max = WHOLE,
  match = TEXT, not_match = TEXT, starts_with = TEXT, match_all = PATTERNS, match_none = PATTERNS,
  match_any = record_of({ { patterns = { type = "array", elements = TEXT, required = true } }, { err = TEXT } }),
  one_of = list_of(ANY), not_one_of = list_of(ANY),
  is_regex = FLAG, timestamp = FLAG, uuid = FLAG, custom_validator = FUNCTION,
  mutually_exclusive_subsets = list_of(TEXTS),
}

-- Checks of nested declarations; each is defined below.
local NESTED = {}

local ATTRIBUTES = {
  type = ANY, required = FLAG, reference = TEXT, description = TEXT, examples = list_of(ANY), auto = FLAG, unique = FLAG,
  unique_across_ws = FLAG, on_delete = { type = "string", one_of = { "restrict", "cascade", "null" } },
  default = ANY, abstract = FLAG, generate_admin_api = FLAG, immutable = FLAG, err = TEXT, encrypted = FLAG,
  referenceable = FLAG, indexed = FLAG, legacy = FLAG,
  deprecation = record_of({
    { message = TEXT }, { removal_in_version = TEXT }, { old_default = ANY },
    { replaced_with = list_of(record_of({ { path = TEXTS }, { reverse_mapping_function = FUNCTION } })) },
  }),
  json_schema = record_of({
    { namespace = TEXT }, { parent_subschema_key = TEXT }, { optional = FLAG }, { inline = ANY }, { default = ANY },
  }),
  elements = NESTED, keys = NESTED, values = NESTED, fields = NESTED, entity_checks = NESTED, shorthand_fields = NESTED,
  transformations = list_of(record_of({
    { input = TEXTS }, { needs = TEXTS }, { on_write = FUNCTION }, { on_read = FUNCTION },
  })),
}
local CONDITIONS = { required = FLAG, elements = NESTED, keys = NESTED, values = NESTED }
for name, rule in pairs(RULES) do ATTRIBUTES[name], CONDITIONS[name] = rule, rule end
local OF_SHORTHANDS = { func = FUNCTION, translate_backwards = TEXTS }
for name, attribute in pairs(ATTRIBUTES) do OF_SHORTHANDS[name] = attribute end

local OF_PLUGINS = {
  name = TEXT, fields = NESTED, entity_checks = NESTED, shorthand_fields = NESTED, check = FUNCTION,
  transformations = ATTRIBUTES.transformations,
}
local OF_ENTITIES = {
  primary_key = TEXTS, workspaceable = FLAG, endpoint_key = TEXT, cache_key = TEXTS, ttl = FLAG, db_export = FLAG,
  subschema_key = TEXT, subschema_error = TEXT, generate_admin_api = FLAG, admin_api_name = TEXT, table_name = TEXT,
  admin_api_nested_name = TEXT, dao = TEXT,
}
for name, member in pairs(OF_PLUGINS) do OF_ENTITIES[name] = member end

local CHECKS = {
  at_least_one_of = TEXTS, only_one_of = TEXTS, distinct = TEXTS, mutually_required = TEXTS, mutually_exclusive = TEXTS,
  mutually_exclusive_sets = { set1 = TEXTS, set2 = TEXTS },
  conditional = { if_field = TEXT, if_match = CONDITIONS, then_field = TEXT, then_match = CONDITIONS, then_err = TEXT },
  conditional_at_least_one_of = {
    if_field = TEXT, if_match = CONDITIONS, then_at_least_one_of = TEXTS, then_err = TEXT,
    else_match = CONDITIONS, else_then_at_least_one_of = TEXTS, else_then_err = TEXT,
  },
  custom_entity_check = {
    field_sources = TEXTS, fn = FUNCTION, run_with_missing_fields = FLAG, run_with_invalid_fields = FLAG,
  },
}

-- The members that a check cannot do without, and those that hold names of fields.
local DEMANDED_OF_CHECKS = {
  mutually_exclusive_sets = { "set1", "set2" }, conditional = { "if_field", "if_match", "then_field", "then_match" },
  conditional_at_least_one_of = { "if_field", "if_match", "then_at_least_one_of" }, custom_entity_check = { "fn" },
}
local NAMES_OF_FIELDS = {
  "field_sources", "if_field", "then_field", "set1", "set2", "then_at_least_one_of", "else_then_at_least_one_of",
}
-- Kong itself fails when one of these names a field that there is not. In others it counts as one without a value.
local FAILS_WITHOUT = { only_one_of = true, distinct = true, field_sources = true, if_field = true }

-- What a type must declare, and the types that an attribute is for.
local DEMANDED = { array = { "elements" }, set = { "elements" }, map = { "keys", "values" }, record = { "fields" }, json = { "json_schema" } }
local ONLY = {
  between = "integer number", len_eq = "array set string map", match = "string", one_of = "string number integer",
  contains = "array set", is_regex = "string", timestamp = "number integer", uuid = "string",
  unique = "string number integer foreign", unique_across_ws = "string number integer foreign",
  abstract = "string number integer record array set map", json_schema = "json",
}
-- The same of attributes that Kong takes with any type. With others they do nothing, or fail whatever the value.
local USEFUL = {
  elements = "array set", keys = "map", values = "map", fields = "record", entity_checks = "record",
  shorthand_fields = "record", len_min = "array set string map", len_max = "array set string map",
  gt = "integer number", starts_with = "string", not_match = "string", match_all = "string", match_none = "string",
  match_any = "string", mutually_exclusive_subsets = "array set", reference = "foreign",
}
for _, list in ipairs({ ONLY, USEFUL }) do
  for name, types in pairs(list) do list[name] = set_of(types) end
end

-- The fields of a plugin entity, with the types that they keep. That of the configuration is the plugin's.
local OF_PLUGIN_ENTITIES = {
  id = "string", name = "string", instance_name = "string", created_at = "integer", updated_at = "integer",
  route = "foreign", service = "foreign", consumer = "foreign", consumer_group = "foreign", config = "record",
  protocols = "set", enabled = "boolean", tags = "set", ordering = "record",
}

local wrong, useless

local function add(path, message, name) wrong[#wrong + 1] = { path, message, name or "" } end

local function below(path, name) return path == "" and tostring(name) or path .. "." .. tostring(name) end

local function names(set)
  local found = {}
  for name in pairs(set) do found[#found + 1] = name end
  table.sort(found, function(one, other) return tostring(one) < tostring(other) end)
  return found
end

local function unknown(what, name, known)
  name = type(name) == "table" and "{…}" or name
  return ("there is no %s `%s`%s"):format(what, tostring(name), near(tostring(name), names(known)))
end

-- The fields that are there whether or not a schema declares them.
local OF_EVERY_ENTITY = set_of("id created_at updated_at tags ttl ws_id")

-- Whether a record has a field at a path. What is below a field that has no fields of its own is not known.
local function has_field(fields, path, kept)
  local first, rest = path:match("^([^.]*)%.?(.*)$")
  if kept[first] and not (first == "config" and rest ~= "") then return true end
  for _, item in ipairs(fields) do
    local field = type(item) == "table" and item[first]
    if field then
      local list = type(field) == "table" and field.type == "record" and field.fields
      if rest == "" or type(list) ~= "table" then return true end
      local old = type(field.shorthand_fields) == "table" and field.shorthand_fields or {}
      return has_field(list, rest, {}) or has_field(old, rest, {})
    end
  end
  return false
end

local function is_list(value)
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  return count == #value
end

local function check_value(declared, value, path, name)
  local errors = {}
  Schema.check_field(declared, value, path, errors)
  for _, found in ipairs(errors) do add(found[1], found[2], name) end
end

local function too_deep()
  error(("fields are more than %d deep within others: does one contain itself?"):format(MAX_DEPTH), 0)
end

local function copy(value, depth)
  if type(value) ~= "table" then return value end
  if depth == 0 then too_deep() end
  local made = {}
  for name, member in pairs(value) do made[name] = copy(member, depth - 1) end
  return setmetatable(made, getmetatable(value))
end

-- The items of a list of tables with one member each.
local function check_items(list, path, check)
  if type(list) ~= "table" or not is_list(list) then
    return add(path, "expected an array of tables with one name each, such as { { name = { type = \"string\" } } }")
  end
  for index, item in ipairs(list) do
    local place = path .. "[" .. index .. "]"
    if type(item) ~= "table" then
      add(place, "each entry must be a sub-table")
    elseif next(item) == nil then
      add(place, "the entry is empty")
    elseif next(item, (next(item))) ~= nil then
      add(place, "an entry must have one name, but this has " .. table.concat(names(item), ", "))
    elseif type(next(item)) ~= "string" then
      add(place, "the name of a field must be a string")
    else
      check(next(item))
    end
  end
end

local check_declaration, check_patterns

local function check_fields(declared, list, path, depth, known, types)
  if declared[list] == nil then return end
  local seen = {}
  check_items(declared[list], below(path, list), function(name, field)
    if seen[name] then useless[#useless + 1] = { below(path, name), "is declared twice", name } end
    seen[name] = true
    check_declaration(field, below(path, name), depth, known, types)
  end)
end

local function check_conditions(members, path, known, depth, what)
  if type(members) ~= "table" then return add(path, "expected a record") end
  if known == CONDITIONS then check_patterns(members, path) end
  for _, name in ipairs(names(members)) do
    local declared, place = known[name], below(path, name)
    if declared == nil then
      add(path, unknown(what, name, known), tostring(name))
    elseif declared == NESTED then
      check_declaration(members[name], place, depth, ATTRIBUTES, TYPES)
    elseif declared == CONDITIONS then
      check_conditions(members[name], place, CONDITIONS, depth, "attribute")
    else
      check_value(declared, members[name], place, name)
    end
  end
end

-- Names of fields in a check that its record does not have.
local function check_names(owner, member, list, place)
  for _, name in ipairs(type(list) == "table" and list or { list }) do
    if type(name) == "string" and not owner.has(name) then
      local message = ("there is no field `%s`"):format(name)
      if FAILS_WITHOUT[member] and not owner.runs_without then
        add(place, message, name)
      else
        useless[#useless + 1] = { place, message, name }
      end
    end
  end
end

local function check_rule(owner, name, rule, place)
  if CHECKS[name].type then return check_names(owner, name, rule, place) end
  for _, member in ipairs(DEMANDED_OF_CHECKS[name] or {}) do
    if rule[member] == nil then add(place, ("the check needs `%s`"):format(member), name) end
  end
  if rule.else_match and not rule.else_then_at_least_one_of then
    add(place, "`else_match` needs `else_then_at_least_one_of`", "else_match")
  end
  if name == "custom_entity_check" and rule.field_sources == nil then
    useless[#useless + 1] = { place, "the check never runs, because it has no `field_sources`", name }
  end
  owner.runs_without = rule.run_with_missing_fields or name == "conditional_at_least_one_of"
  for _, member in ipairs(NAMES_OF_FIELDS) do check_names(owner, member, rule[member], below(place, member)) end
  owner.runs_without = nil
end

-- What the checks of a record may name.
local function owner_of(record)
  local list = type(record.fields) == "table" and record.fields or {}
  local old = type(record.shorthand_fields) == "table" and record.shorthand_fields or {}
  local kept = record.type and {} or record.primary_key and OF_EVERY_ENTITY or OF_PLUGIN_ENTITIES
  return { has = function(name) return has_field(list, name, kept) or has_field(old, name, {}) end }
end

local function check_checks(record, path, depth)
  local owner = owner_of(record)
  check_items(record.entity_checks, path, function(name, rule)
    local declared, place, before = CHECKS[name], path .. "." .. name, #wrong
    if declared == nil then
      add(path, unknown("entity check", name, CHECKS), name)
    elseif declared.type then
      check_value(declared, rule, place, name)
    else
      check_conditions(rule, place, declared, depth, "member")
    end
    if #wrong == before then check_rule(owner, name, rule, place) end
  end)
end

local function check_nested(field, path, depth)
  for _, name in ipairs({ "elements", "keys", "values" }) do
    if field[name] ~= nil then check_declaration(field[name], below(path, name), depth, ATTRIBUTES, TYPES) end
  end
  check_fields(field, "fields", path, depth, ATTRIBUTES, TYPES)
  check_fields(field, "shorthand_fields", path, depth, OF_SHORTHANDS, TYPES_OF_SHORTHANDS)
  if field.entity_checks ~= nil then check_checks(field, below(path, "entity_checks"), depth) end
end

local function check_type(field, path, known, types)
  if field.type == nil then return add(path, "missing type declaration") end
  if not types[field.type] then return add(path, unknown("type", field.type, types), tostring(field.type)) end
  local demanded = field.abstract and field.type == "record" and {} or DEMANDED[field.type] or {}
  for _, name in ipairs(demanded) do
    if not field[name] then add(path, ("field of type '%s' must declare '%s'"):format(field.type, name)) end
  end
  if known == OF_SHORTHANDS and field.func == nil then add(path, "a shorthand must declare 'func'") end
  for _, name in ipairs(names(field)) do
    if ONLY[name] and not ONLY[name][field.type] then
      add(path, ("field of type '%s' cannot have attribute '%s'"):format(field.type, name), name)
    elseif USEFUL[name] and not USEFUL[name][field.type] then
      useless[#useless + 1] = { path, ("attribute '%s' does not work with type '%s'"):format(name, field.type), name }
    end
  end
end

-- The patterns of a field, or of a condition.
function check_patterns(field, path)
  local function check_pattern(pattern, name)
    local problem = type(pattern) == "string" and pattern_problem(pattern)
    if problem then add(path, ("%s: %s"):format(name, problem), name) end
  end
  check_pattern(field.match, "match")
  check_pattern(field.not_match, "not_match")
  for _, name in ipairs({ "match_all", "match_none" }) do
    for _, item in ipairs(type(field[name]) == "table" and field[name] or {}) do
      if type(item) == "table" then check_pattern(item.pattern, name) end
    end
  end
  local any = type(field.match_any) == "table" and field.match_any.patterns
  for _, pattern in ipairs(type(any) == "table" and any or {}) do check_pattern(pattern, "match_any") end
end

local function check_members(table, path, known, what)
  for _, name in ipairs(names(table)) do
    local declared = known[name]
    if declared == nil then
      add(path, unknown(what, name, known), tostring(name))
    elseif declared ~= NESTED then
      check_value(declared, table[name], below(path, name), name)
    end
  end
end

function check_declaration(field, path, depth, known, types)
  if depth == 0 then too_deep() end
  if type(field) ~= "table" then return add(path, "the declaration of a field must be a table") end
  local before = #wrong
  check_members(field, path, known, "attribute")
  check_type(field, path, known, types)
  check_patterns(field, path)
  if field.unique_across_ws and not field.unique then add(path, "unique_across_ws needs unique = true", "unique_across_ws") end
  check_nested(field, path, depth - 1)
  if #wrong == before and field.default ~= nil and field.default ~= null then
    local _, errors = Schema.read(field, copy(field.default, MAX_DEPTH))
    for _, found in ipairs(errors) do add(path, "default: " .. found[2], "default") end
  end
end

-- Fields that no plugin entity has, or that are of another type there.
local function check_fields_of_plugin(fields)
  local has_config = false
  for _, item in ipairs(fields) do
    local name, field = next(item)
    local kept = OF_PLUGIN_ENTITIES[name]
    if not kept then
      add(name, "a plugin has no such field" .. near(name, names(OF_PLUGIN_ENTITIES)) ..
        "; fields of your own go into `config`", name)
    elseif field.type ~= kept then
      add(name, ("cannot change type: it is '%s'"):format(kept), name)
    end
    has_config = has_config or name == "config"
  end
  if not has_config then add("fields", "add a field `config` of the type record") end
end

-- What Kong demands of the fields that an entity's keys name.
local function check_keys(declared)
  local only = #(declared.cache_key or {}) == 1 and declared.cache_key[1]
  for _, item in ipairs(declared.fields) do
    local name, field = next(item)
    if name == only and not field.unique then
      add("cache_key", "a field used as a single cache key must be unique", name)
    end
    if name == "ttl" and declared.ttl then add("ttl", "ttl is a reserved field name when ttl is enabled", name) end
  end
end

local function check(declared, is_entity)
  check_members(declared, "", is_entity and OF_ENTITIES or OF_PLUGINS, "member")
  if declared.name == nil then add("name", "required field missing") end
  if is_entity and declared.primary_key == nil then add("primary_key", "required field missing: write { \"id\" }") end
  if type(declared.fields) ~= "table" then return add("fields", "'fields' must be a table") end
  check_nested(declared, "", MAX_DEPTH)
  if #wrong > 0 then return end
  local check_more = is_entity and check_keys or function() check_fields_of_plugin(declared.fields) end
  check_more(declared)
end

return function(declared, is_entity)
  wrong, useless = {}, {}
  check(declared, is_entity)
  if declared.transformations ~= nil then
    useless[#useless + 1] = { "transformations", "are not run here", "transformations" }
  end
  return wrong, useless
end
