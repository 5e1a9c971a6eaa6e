-- kong.db.errors: the codes of the third value that functions of `kong.db` return.
local CODES = [[INVALID_PRIMARY_KEY SCHEMA_VIOLATION PRIMARY_KEY_VIOLATION FOREIGN_KEY_VIOLATION UNIQUE_VIOLATION NOT_FOUND
  INVALID_OFFSET DATABASE_ERROR INVALID_SIZE INVALID_UNIQUE INVALID_OPTIONS OPERATION_UNSUPPORTED FOREIGN_KEYS_UNRESOLVED
  DECLARATIVE_CONFIG TRANSFORMATION_ERROR INVALID_FOREIGN_KEY INVALID_WORKSPACE INVALID_UNIQUE_GLOBAL
  REFERENCED_BY_OTHERS]]
local errors = { codes = {}, names = {} }
for code in CODES:gmatch("%S+") do
  errors.names[#errors.names + 1] = code:lower():gsub("_", " ")
  errors.codes[code] = #errors.names
  errors[code] = #errors.names
end
return errors
