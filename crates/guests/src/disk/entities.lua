-- Makes the function that checks an entity by its schema in the file `daos.lua`. It returns pairs of a path and a message.
local declared, name, Schema = ...
local found
for _, schema in pairs(declared) do
  if type(schema) == "table" and schema.name == name then found = schema end
end
local known = {}
for _, item in ipairs(found.fields) do known[next(item)] = true end
local record = { type = "record", fields = found.fields, entity_checks = found.entity_checks }

return function(entity)
  -- What the node adds is none of the schema's.
  for field in pairs(entity) do
    if not known[field] then entity[field] = nil end
  end
  local errors = {}
  Schema.check_field(record, entity, "", errors)
  return errors
end
