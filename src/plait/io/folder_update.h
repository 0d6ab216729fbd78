// A folder that others keep things in, replaced by a new version at once: update_folder puts a
// fresh folder in the place of an old one, and what the old one holds besides is kept.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace plait {

// Puts the complete folder `fresh` in the place of `target`, beside it. Files and folders of the
// old `target` that `fresh` lacks are kept, as the same files (hard links), unless
// `dropped(name)` says that the name goes with the old version. At every moment `target` is the old
// version or the new one, both with everything else in it. Files that appear in the old folder
// meanwhile are moved over. When it fails before that, `fresh` is gone and `target` as it was.
void update_folder(const std::string& fresh, const std::string& target,
                   const std::function<bool(std::string_view)>& dropped);

// Throws when update_folder could not keep what is in there: a folder of another file system.
void check_updatable(const std::string& target);

// Copies a file, synced; the copy appears under its name when it is complete.
void copy_file_synced(const std::string& from, const std::string& to);

}  // namespace plait
