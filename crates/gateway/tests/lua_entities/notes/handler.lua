local Notes = { PRIORITY = 10, VERSION = "1.0.0" }
-- Before the node serves.
local notes = kong.db.notes

local actions = {
  -- A note, by the key of the cache, and how many marks it has.
  GET = function(title)
    local note = notes:select_by_cache_key(notes:cache_key(title))
    if not note then
      return kong.response.exit(404, { message = "no note" })
    end
    local marks = 0
    for _ in kong.db.note_marks:each_for_note(note) do marks = marks + 1 end
    return kong.response.exit(200, { title = note.title, size = note.size, parts = note.parts, marks = marks })
  end,
  -- Marks a note.
  PUT = function(title)
    local note = assert(kong.db.notes:select_by_title(title))
    local mark, message, err = kong.db.note_marks:insert({ note = { id = note.id }, number = 1 })
    return kong.response.exit(mark and 201 or 409, { code = err and err.code, marked = mark and mark.note.id == note.id })
  end,
  -- A new note.
  POST = function(title)
    local note, message, err = kong.db.notes:insert({ title = title, parts = { "a" }, size = 2 })
    return kong.response.exit(note and 201 or 400, note or { message = message, fields = err.fields })
  end,
}

function Notes:access()
  return actions[kong.request.get_method()](kong.request.get_query_arg("title"))
end

return Notes
