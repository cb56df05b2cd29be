# A template: the release workflow writes the address of the source distribution and its digest.
# `brew update-python-resources Formula/orchard.rb` adds what Orchard depends on.
class Orchard < Formula
  include Language::Python::Virtualenv

  desc "Run many coding agents at once, merge their work in memory, land it safely"
  homepage "@HOMEPAGE@"
  url "@SDIST@"
  sha256 "@SHA256@"
  license "Apache-2.0"

  depends_on "git"
  depends_on "python@3.13"

  def install
    virtualenv_install_with_resources
    generate_completions_from_executable(bin/"orchard", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/orchard --version")
    system bin/"orchard", "demo", "--folder", testpath/"demo"
  end
end
