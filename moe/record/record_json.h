#pragma once
// Writes and reads records as lines of JSON. Two units see the JSON library; reader and writer see these functions.
#include <string>
#include <string_view>
#include <variant>

#include "moe/base/json.h"
#include "moe/record/record.h"

namespace moe {

struct ResumeMark {
  std::string started;  // UTC, ISO 8601
};
struct EndMark {
  std::string ended;       // UTC, ISO 8601
  Fields conditions = {};  // as those of the header, then
};
using RecordLine = std::variant<RunHeader, CaseRecord, CaseGroup, ResumeMark, EndMark>;

// The line of a group:
//
//   {"kind": "cases", "parameters": {...}, "key": "plan/B1-L256/", "tables": [
//     {"columns": ["key", {"status": "ok"}, "degree_forward", "prediction.total_s", ...],
//      "rows": [["fsmoe", 4, 0.01, ...], ...]}]}
//
// Each row is a case, with the keys of a case line in the order of the columns: a name takes the next cell (PART.NAME:
// of a field of a part), an object has what all rows share. A case's key stands behind the line's. A table holds cases
// with the same keys.

/// Returns one line with its newline.
std::string to_json_line(const RecordLine& line);

/// Returns whether the text is one complete JSON value, whatever it says: false for a torn line.
bool is_complete_json(std::string_view text);

/// Reads a line; the cases of a group get its parameters. Throws BadInput "WHERE: KEY: found ..., expected ...";
/// `where` is "FILE:LINE". Keys that are not known are passed over, so that a later version may add some.
RecordLine record_line_from(std::string_view text, const std::string& where);

// Named values as JSON, for documents that hold what records do.

/// Returns the object {NAME: VALUE, ...} in the order of the fields.
inline Json to_json(const Fields& fields) {
  Json object = Json::object();
  for (const auto& [name, value] : fields) std::visit([&, &key = name](const auto& v) { object[key] = v; }, value);
  return object;
}

}  // namespace moe
