#pragma once
// What every flag of every verb does, as a table: the test that walks the command line compares the two.
#include <map>
#include <string>

namespace moe {

enum class Effect {
  changes,    // what is printed is different, and no error
  describes,  // likewise, but only in the description of the layer that goes into documents and records
  writes,     // the file "written" is there afterwards
  refused,    // one line that names the flag, exit code 2
  parsed      // of verbs that run for long: the options that the verb is called with are different
};

struct FlagEffect {
  Effect effect;
  std::string without, with;  // what stands behind the verb
};

/// By verb and flag (its first long name, or a positional's name), in one context or several.
std::map<std::string, std::multimap<std::string, FlagEffect>> flag_effects();

}  // namespace moe
