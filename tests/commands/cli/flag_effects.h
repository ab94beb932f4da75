#pragma once
// What every flag of every verb does, as a table: the test that walks the command line compares the two.
#include <map>
#include <string>

namespace moe {

enum class Effect {
  changes,    // what is printed is different, and no error
  describes,  // only the description of the layer in documents and records is different, and no error
  writes,     // the file "written" is there afterwards
  refused,    // one line that names the flag, exit code 2
  parsed      // of verbs that run for long: the options that the verb is called with are different
};

struct FlagEffect {
  Effect effect;
  std::string without, with;  // what stands behind the verb
};

/// The effects of one verb: by flag (its first long name, or a positional's name), in one context or several.
using Effects = std::multimap<std::string, FlagEffect>;
using EffectsOfVerbs = std::map<std::string, Effects>;

/// Flags of sizes and groups, which change bytes and times. Groups of other sizes than the profile's borrow their
/// rows.
extern const std::string kSizes;

/// Adds an effect of flags with their values, separated by semicolons, each alone beside the words of `base`.
void add(Effects& effects, Effect effect, const std::string& base, const std::string& flags);
/// Adds the widths of latent attention: each first, with all others that it needs; alone it is refused.
void add_latent_widths(Effects& effects, const std::string& base);
/// Adds the flags by which the ranks of verbs that run layers come to be. Beside a backend of threads most mean
/// nothing.
void add_ranks(Effects& effects);

/// Return the effects of the verbs that plan, of those that run something, and of those that read records and write
/// others' files.
EffectsOfVerbs effects_of_planning();
EffectsOfVerbs effects_of_running();
EffectsOfVerbs effects_of_records();

/// Returns the effects of all verbs.
EffectsOfVerbs flag_effects();

}  // namespace moe
