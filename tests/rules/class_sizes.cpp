#include "tests/rules/class_sizes.h"

#include <regex>
#include <sstream>

namespace moe::rules {
namespace {

// Returns the class that the line begins to define, or whose member; empty: none.
std::string class_begun(const std::string& line) {
  static const std::regex kClass(R"(^(?:template <.*> )?(?:class|struct) (\w+)(?: final)?(?: : [^;]*)? \{.*$)"),
      kMember(R"(^[\w:<>,&*\[\] ]*?\b(\w+)::~?(?:\w+|operator\S+)\(.*$)");
  std::smatch match;
  if (std::regex_match(line, match, kClass)) return match[1];
  const bool indented = line.empty() || line.front() == ' ';
  return !indented && std::regex_match(line, match, kMember) ? std::string(match[1]) : "";
}

}  // namespace

std::map<std::string, int> class_sizes(const std::vector<TreeFile>& files) {
  std::map<std::string, int> sizes;
  for (const TreeFile& file : files) {
    if (!is_source(file.path)) continue;
    const std::string folder = file.path.substr(0, file.path.rfind('/') + 1);
    std::istringstream stream(file.text);
    std::string open;   // the class whose lines these are
    bool head = false;  // before the brace that opens its body
    for (std::string line; std::getline(stream, line);) {
      line = line.substr(0, line.find("  //"));
      if (open.empty()) head = !(open = class_begun(line)).empty();
      if (open.empty()) continue;
      ++sizes[folder + open];
      const bool all_in_head = head && (line.ends_with("}") || line.ends_with(";"));
      head = head && !line.ends_with("{");
      if (all_in_head || line.starts_with("}")) open.clear();
    }
  }
  return sizes;
}

}  // namespace moe::rules
