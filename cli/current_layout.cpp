#include <map>
#include <set>
#include <sstream>

#include "cli/flag_kinds.h"
#include "moe/base/files.h"
#include "moe/base/log.h"
#include "verbs/frameworks.h"

namespace moe::cli {
namespace {

constexpr std::string_view kMegatron = "megatron";

/// Arguments by their names; of a switch the value is empty.
using Arguments = std::map<std::string, std::string, std::less<>>;

// Reads a command line, a script's array or lines of both. Of an argument that is there twice the last one counts.
Arguments arguments_of(const std::string& text) {
  std::string plain;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    std::ranges::replace_if(
        line, [](char c) { return std::string_view("\\\"'()").find(c) != std::string_view::npos; }, ' ');
    plain += line + '\n';
  }
  Arguments arguments;
  std::istringstream words(plain);
  std::string name;
  for (std::string word; words >> word;) {
    if (word.starts_with("--")) {
      const size_t equals = word.find('=');
      name = word.substr(0, equals);
      arguments[name] = equals == std::string::npos ? "" : word.substr(equals + 1);
    } else if (!name.empty() && arguments[name].empty()) {
      arguments[name] = word;
    }
  }
  return arguments;
}

// Returns the virtual stages that --num-layers-per-virtual-pipeline-stage comes to.
std::string virtual_stages_of(const Arguments& given, const std::string& stages, const std::string& where) {
  constexpr std::string_view kLayersAStage = "--num-layers-per-virtual-pipeline-stage";
  const auto layers = given.find("--num-layers");
  require<BadInput>(layers != given.end(), "{}: found {} without --num-layers, expected both", where, kLayersAStage);
  const NumberRange range{1, 1e5};
  const auto whole = [&](std::string_view name, const std::string& text) {
    return number<int>(fmt::format("{}: {}", where, name), text, range);
  };
  const int chunk = whole(kLayersAStage, given.find(kLayersAStage)->second) * whole("stages", stages),
            all = whole("--num-layers", layers->second);
  require<BadInput>(all % chunk == 0, "{}: {}: found {} layers, expected a multiple of {}", where, kLayersAStage, all,
                    chunk);
  return std::to_string(all / chunk);
}

// Returns what the arguments of a training with Megatron-Core say, as words. Where they say nothing, Megatron's own
// defaults hold; its attention keeps no scores, with recomputation or without.
std::vector<std::string> words_of(const std::string& file) {
  const Arguments given = arguments_of(text_of_file(file, "Megatron-Core's arguments"));
  const std::string where = "--current: " + file;
  const verbs::Framework& megatron = verbs::framework_of(kMegatron);
  std::map<std::string_view, std::string> values{
      {"--mp", "1"}, {"--ep", "1"}, {"--pp", "1"}, {"--zero", "0"}, {"--recompute", "selective"}};
  bool any = false;
  for (const auto& [ours, theirs] : megatron.settings)
    if (const auto known = given.find(theirs); known != given.end()) {
      values[ours] = ours == "--zero" ? "1" : known->second;
      any = true;
    }
  require<BadInput>(any,
                    "{}: found no argument of Megatron-Core that says groups or micro-batches, expected such as {} N",
                    where, megatron.settings.front().theirs);
  if (given.contains("--num-layers-per-virtual-pipeline-stage"))
    values["--virtual-stages"] = virtual_stages_of(given, values["--pp"], where);
  if (const auto ranks = given.find("--context-parallel-size"); ranks != given.end())
    require<BadInput>(ranks->second == "1",
                      "{}: --context-parallel-size: found {}, expected 1: no plan has such groups", where,
                      ranks->second);
  if (given.contains("--overlap-moe-expert-parallel-comm"))
    log_warning(where + ": --overlap-moe-expert-parallel-comm is not planned");
  values.try_emplace("--esp", values["--mp"]);
  std::vector<std::string> words{std::string(megatron.schedules().front()->name)};
  for (const auto& [flag, value] : values) words.push_back(fmt::format("{}={}", flag.substr(2), value));
  return words;
}

/// The flags that a layout's words name, and what they set.
class LayoutWords {
 public:
  LayoutWords() {
    app_.set_help_flag();
    add_batch(app_, selection_);
    add_groups(app_, selection_);
    add_micro_batches(app_, layout_.model);
    add_global_batch(app_, layout_.global_batch);
    add_states(app_, selection_);
  }

  void read(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = equals == std::string::npos ? "a schedule" : word.substr(0, equals);
    require<BadInput>(!word.empty(), "--current: found an empty word, expected {}", expected());
    require<BadInput>(read_.insert(name).second, "--current: found {} twice, expected it once", name);
    if (equals == std::string::npos) {
      layout_.schedule = word;
      return;
    }
    const std::string flag = "--" + name;
    if (name.empty() || app_.get_option_no_throw(flag) == nullptr)
      bad_input("--current: found '{}', expected {}{}", word, expected(), meant_by(flag, app_));
    try {
      app_.parse(std::vector<std::string>{"--" + word});
    } catch (const BadInput& error) {
      bad_input("--current: {}", error.what());
    } catch (const CLI::ParseError&) {
      bad_input("--current: found '{}', expected {}=VALUE", word, name);
    }
  }

  tuner::CurrentLayout layout() && {
    layout_.layer = selection_.layer;
    return std::move(layout_);
  }

 private:
  std::string expected() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app_.get_options()) names.push_back(option->get_lnames().front());
    return fmt::format("SCHEDULE[:R_F[:R_B]] or NAME=VALUE, with NAME one of: {}", fmt::join(names, ", "));
  }

  CLI::App app_;
  verbs::Selection selection_;
  tuner::CurrentLayout layout_;
  std::set<std::string> read_;
};

}  // namespace

tuner::CurrentLayout current_layout(const std::string& text) {
  const bool is_file = text.find_first_of("/.") != std::string::npos;
  std::vector<std::string> words;
  if (is_file) {
    words = words_of(text);
  } else {
    std::istringstream list(text + ',');
    for (std::string word; std::getline(list, word, ',');) words.push_back(word);
  }
  LayoutWords read;
  for (const std::string& word : words) read.read(word);
  tuner::CurrentLayout layout = std::move(read).layout();
  if (is_file) layout.framework = kMegatron;
  return layout;
}

}  // namespace moe::cli
