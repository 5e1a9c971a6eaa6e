-- kong.db.schema: what a schema says of values. It fills in defaults, and says what is wrong in Kong's words.
local rules = require "kong.db.schema.rules"
local checks = require "kong.db.schema.entity_checks"
local null = ngx.null
local Schema = {}
Schema.__index = Schema

-- Marks that tell lists from mappings where both are empty tables.
local LIST = require("cjson").array_mt

local function copy(value)
  if type(value) ~= "table" then return value end
  local made = {}
  for key, member in pairs(value) do made[key] = copy(member) end
  return setmetatable(made, getmetatable(value))
end

-- The one name and the declaration of an item of `fields`.
local function named(item) return next(item) end

local function is_list(value)
  local count = 0
  for key in pairs(value) do
    count = count + 1
    if type(key) ~= "number" then return false end
  end
  return count == #value
end

local function path_below(path, name)
  if path == "" then return name end
  return path .. "." .. name
end

local fill

-- Puts the members of `more` into `into`, record by record.
local function put(into, more)
  for name, value in pairs(more) do
    if type(value) == "table" and type(into[name]) == "table" and not is_list(value) then
      put(into[name], value)
    elseif type(value) == "table" or into[name] == nil or into[name] == null then
      into[name] = value
    end
  end
end

local function at(value, path)
  for _, name in ipairs(path) do
    if type(value) ~= "table" then return nil end
    value = value[name]
  end
  return value
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do if not same(value, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

-- What a deprecated field says must not differ from what the field says that took its place.
local function mismatch(record, name, declared)
  local deprecation = declared.deprecation or {}
  for _, replaced in ipairs(deprecation.replaced_with or {}) do
    local value = at(record, replaced.path)
    if value ~= nil and value ~= null and not same(value, record[name]) then
      return ("both deprecated and new field are used but their values mismatch: %s = %s vs %s = %s"):format(
        name, tostring(record[name]), table.concat(replaced.path, "."), tostring(value))
    end
  end
end

-- Replaces old names of fields by what their functions make of them.
local function expand(declared, record, path, errors)
  for _, item in ipairs(declared.shorthand_fields or {}) do
    local name, shorthand = named(item)
    local value = record[name]
    if value ~= nil then
      local count = #errors
      local wrong = value ~= null and mismatch(record, name, shorthand)
      if wrong then
        errors[#errors + 1] = { path_below(path, name), wrong }
      elseif value ~= null then
        Schema.check_field(shorthand, value, path_below(path, name), errors)
      end
      record[name] = nil
      if count == #errors and value ~= null then
        put(record, shorthand.func(value, record) or {})
      end
    end
  end
end

-- A value that is made up for a field that has none.
local function automatic(name, field, value)
  local is_missing = value == nil
  if field.type == "string" then
    if not is_missing then return value end
    return field.uuid and require("kong.tools.uuid").uuid() or require("kong.tools.rand").random_string()
  end
  local is_time = field.timestamp or name == "created_at" or name == "updated_at"
  if is_time and (is_missing or value == null and name == "created_at") then
    if field.type == "integer" then return ngx.time() end
    if field.type == "number" then return ngx.now() end
  end
  return value
end

local function fill_record(declared, record, path, errors)
  expand(declared, record, path, errors)
  for _, item in ipairs(declared.fields or {}) do
    local name, field = named(item)
    if field.auto then record[name] = automatic(name, field, record[name]) end
    record[name] = fill(field, record[name], path_below(path, name), errors)
  end
  return record
end

local function default_of(field)
  if field.default ~= nil then return copy(field.default) end
  if field.required ~= true then return null end
  if field.type == "record" then return {} end
end

local function unique(list)
  local seen, kept = {}, setmetatable({}, LIST)
  for _, value in ipairs(list) do
    if type(value) == "table" or not seen[value] then
      kept[#kept + 1] = value
      seen[value] = true
    end
  end
  return kept
end

-- The value with its defaults; one that is missing is its default.
function fill(field, value, path, errors)
  if value == nil then value = default_of(field) end
  if type(value) ~= "table" then return value end
  local kind = field.type
  if kind == "record" and (next(value) == nil or not is_list(value)) then
    return fill_record(field, setmetatable(value, nil), path, errors)
  elseif kind == "array" or kind == "set" then
    if not is_list(value) then return value end
    for index, element in ipairs(value) do
      value[index] = fill(field.elements or {}, element, path .. "[" .. index - 1 .. "]", errors)
    end
    return kind == "set" and unique(value) or setmetatable(value, LIST)
  elseif kind == "map" then
    for name, member in pairs(value) do
      value[name] = fill(field.values or {}, member, path_below(path, tostring(name)), errors)
    end
  end
  return value
end

local function check_list(field, value, path, errors)
  if not is_list(value) then return "expected " .. (field.type == "set" and "a set" or "an array") end
  for index, element in ipairs(value) do
    Schema.check_field(field.elements or {}, element, path .. "[" .. index - 1 .. "]", errors, true)
  end
end

local function check_map(field, value, path, errors)
  for name, member in pairs(value) do
    if field.keys then Schema.check_field(field.keys, name, path, errors, true) end
    if field.values then
      Schema.check_field(field.values, member, path_below(path, tostring(name)), errors, true)
    end
  end
end

local function check_record(declared, record, path, errors)
  if next(record) ~= nil and is_list(record) then return "expected a record" end
  local known, broken = {}, #errors
  for _, item in ipairs(declared.fields or {}) do
    local name, field = named(item)
    known[name] = true
    Schema.check_field(field, record[name], path_below(path, name), errors)
  end
  local unknown = {}
  for name in pairs(record) do
    if not known[name] then unknown[#unknown + 1] = tostring(name) end
  end
  table.sort(unknown)
  for _, name in ipairs(unknown) do errors[#errors + 1] = { path_below(path, name), "unknown field" } end
  checks.run(Schema, declared, record, path, { list = errors, from = broken })
end

local CONTAINERS = { array = check_list, set = check_list, map = check_map, record = check_record }
local NOT = {
  array = "expected an array", set = "expected a set", map = "expected a map", record = "expected a record",
  string = "expected a string", number = "expected a number", boolean = "expected a boolean",
  integer = "expected an integer", ["function"] = "expected a function", foreign = "expected a record",
}

local function has_type(kind, value)
  if CONTAINERS[kind] or kind == "foreign" then return type(value) == "table" end
  if kind == "integer" then
    return type(value) == "number" and value % 1 == 0 and value ~= math.huge and value ~= -math.huge
  end
  return NOT[kind] == nil or type(value) == kind
end

local function wrong_null(field, is_element)
  if field.ne == null then return "value must not be null" end
  if field.eq ~= nil and field.eq ~= null then return "value must be " .. tostring(field.eq) end
  if field.required or is_element then return "required field missing" end
end

-- Adds what is wrong with a value to the errors: pairs of a path and a message.
function Schema.check_field(field, value, path, errors, is_element)
  local wrong
  if value == nil or value == null then
    wrong = wrong_null(field, is_element)
  elseif field.type and not has_type(field.type, value) then
    wrong = NOT[field.type]
  elseif field.referenceable and rules.is_reference(value) then
    return
  else
    local count = #errors
    local check = CONTAINERS[field.type]
    wrong = check and check(field, value, path, errors)
    if not wrong and count == #errors then wrong = rules.broken(field, value, errors, path) end
  end
  if wrong then errors[#errors + 1] = { path, wrong } end
end

-- What would be said of a value alone.
function Schema.first_error(field, value)
  local errors = {}
  Schema.check_field(field, value, "", errors)
  return errors[1] and errors[1][2]
end

-- Adds the old names of fields, with the values that their new names have.
local function add_old_names(declared, record)
  if type(record) ~= "table" then return end
  for _, item in ipairs(declared.fields or {}) do
    local name, field = named(item)
    if field.type == "record" then add_old_names(field, record[name]) end
  end
  for _, item in ipairs(declared.shorthand_fields or {}) do
    local name, shorthand = named(item)
    local path = shorthand.translate_backwards
    for _, replaced in ipairs((shorthand.deprecation or {}).replaced_with or {}) do
      path = path or replaced.path
    end
    if path then
      local value = at(record, path)
      record[name] = value == nil and null or value
    end
  end
end

-- Fills in defaults and checks: the value, and pairs of a path and a message.
function Schema.read(field, value)
  local errors = {}
  value = fill(field, value, "", errors)
  Schema.check_field(field, value, "", errors)
  if #errors == 0 then add_old_names(field, value) end
  return value, errors
end

-- Members of checks that are paths of fields, or lists of such.
local PATHS = {
  field_sources = true, if_field = true, then_field = true, set1 = true, set2 = true,
  then_at_least_one_of = true, else_then_at_least_one_of = true,
}

-- Whether all fields that a check reads are of the configuration.
local function is_of_config(rule)
  if type(rule) == "string" then return rule == "config" or rule:sub(1, 7) == "config." end
  if type(rule) ~= "table" then return true end
  for key, member in pairs(rule) do
    if (type(key) == "number" or PATHS[key]) and not is_of_config(member) then return false end
  end
  return true
end

-- The checks of a plugin's schema that read the configuration alone, and those that read more of the entity.
local function split_checks(declared)
  local of_config, of_entity = {}, {}
  for _, check in ipairs(declared.entity_checks or {}) do
    local _, rule = next(check)
    local list = is_of_config(rule) and of_config or of_entity
    list[#list + 1] = check
  end
  return of_config, of_entity
end

-- A function that returns pairs of a path and a message for a plugin's whole entity, whose fields are each valid. Nil if the
-- schema has no such check.
function Schema.plugin_checks(declared)
  local _, checked = split_checks(declared)
  if #checked == 0 then return nil end
  local entity = { fields = declared.fields, entity_checks = checked }
  return function(plugin)
    local errors = {}
    checks.run(Schema, entity, plugin, "", { list = errors, from = 0 })
    for _, wrong in ipairs(errors) do
      if wrong[1] == "@entity" then wrong[1] = "" end
    end
    return errors
  end
end

-- A function that reads a plugin's configuration: it returns that, and pairs of a path and a message.
function Schema.plugin(declared)
  local config, checked = { type = "record", fields = {} }, split_checks(declared)
  for _, item in ipairs(declared.fields) do config = item.config or config end
  config.required = true
  local entity = { type = "record", fields = { { config = config } }, entity_checks = checked }
  return function(written)
    local value, errors = Schema.read(entity, { config = written })
    return value.config, errors
  end
end

-- A declaration that can be called with members to add to it.
function Schema.define(declared)
  return setmetatable(declared, {
    __call = function(self, more)
      local made = copy(self)
      for name, member in pairs(more or {}) do made[name] = copy(member) end
      return setmetatable(made, getmetatable(self))
    end,
  })
end

-- A schema as an object, as tests of plugins use it.
function Schema.new(declared)
  return setmetatable({ declared = declared, fields = declared.fields, name = declared.name }, Schema)
end

local function nested(errors)
  if #errors == 0 then return true end
  local found = {}
  for _, error in ipairs(errors) do found[error[1]] = error[2] end
  return nil, found
end

function Schema:process_auto_fields(input) return fill_record(self.declared, copy(input), "", {}) end

function Schema:validate(input)
  local errors = {}
  Schema.check_field({ type = "record", fields = self.fields, entity_checks = self.declared.entity_checks },
    input, "", errors)
  return nested(errors)
end

Schema.validate_insert = Schema.validate
Schema.validate_upsert = Schema.validate

function Schema:each_field()
  local index = 0
  return function()
    index = index + 1
    if self.fields[index] then return named(self.fields[index]) end
  end
end

return Schema
